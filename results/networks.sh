#!/usr/bin/env bash
# results/networks.sh RUNS DATA [NAME …]
# Trains the larger networks that come with the package, by the recipes of their names, halves the precision of their weights, since the
# package carries them, evaluates each on 1,000 test images, and ships it into the checkout: about 1.5 core hours of training and one of attacks each, without a GPU. It uses as many cores as OMP_NUM_THREADS
# says. Interrupted, the same command goes on where it stopped.
# NETWORKS_EVALUATE has more options of the evaluation: "--autoattack linf=8/255" takes three core hours more.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

names=(cifar10-residual-linf cifar10-residual-l2)
[ $# -gt 0 ] && names=("$@")

for name in "${names[@]}"; do
    case $name in
        cifar10-residual-linf | cifar10-residual-l2) ;;
        *) echo "There is no network $name: choose among cifar10-residual-linf cifar10-residual-l2." >&2 && exit 2 ;;
    esac
    run="$runs/networks/$name"
    trained "networks/$name" "$name"
    half="$run-half"
    # The weights come last: without them the copy was interrupted.
    [ -e "$half/best.safetensors" ] || { rm -rf "$half" && (cd "$here/.." && python -m bench halved "$run" "$half"); }
    gradreg evaluate "$half" --data-dir "$data" --threat "${name##*-}" --images 1000 ${NETWORKS_EVALUATE-}
    gradreg ship "$half" --name "$name" --evaluation "$half/evaluation" --replace \
        --note "The images were lossy JPEG copies of CIFAR-10, so compare with figures of others with care."
done
