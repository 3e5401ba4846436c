#!/usr/bin/env bash
# results/networks.sh RUNS DATA [NAME …]
# Trains the networks of the penalty's best recipes that come with the package, halves the precision of their weights, since the package
# carries them, evaluates each on 1,000 test images, and ships it into the checkout. Without a GPU the small ones take a quarter of an hour
# of training and as much of attacks each, the residual ones 1.5 core hours and half an hour. It uses as many cores as OMP_NUM_THREADS
# says. Interrupted, the same command goes on where it stopped.
# NETWORKS_EVALUATE has more options of the evaluation: "--autoattack linf=8/255" takes three core hours more.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

all=()
for recipe in cifar10-muon fashion-mnist-muon cifar10-residual; do all+=("$recipe-linf" "$recipe-l2"); done
names=("${all[@]}")
[ $# -gt 0 ] && names=("$@")

for name in "${names[@]}"; do
    [[ " ${all[*]} " == *" $name "* ]] || { echo "There is no network $name: choose among ${all[*]}." >&2 && exit 2; }
    note=()
    [[ $name == cifar10-* ]] &&
        note=(--note "The images were lossy JPEG copies of CIFAR-10, so compare with figures of others with care.")
    run="$runs/networks/$name"
    trained "networks/$name" "$name"
    half="$run-half"
    # The weights come last: without them the copy was interrupted.
    [ -e "$half/best.safetensors" ] || { rm -rf "$half" && (cd "$here/.." && python -m bench halved "$run" "$half"); }
    gradreg evaluate "$half" --data-dir "$data" --threat "${name##*-}" --images 1000 ${NETWORKS_EVALUATE-}
    gradreg ship "$half" --name "$name" --evaluation "$half/evaluation" --replace "${note[@]}"
done
