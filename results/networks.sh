#!/usr/bin/env bash
# results/networks.sh RUNS DATA [NAME …]
# Trains the networks that come with the package, evaluates each on 1,000 test images, with AutoAttack at the usual radius, and ships it
# into the checkout in the place of the one of that name: about 3 core hours of training and 4 of attacks each, without a GPU.
# Each call uses as many cores as OMP_NUM_THREADS says. Interrupted, the same command goes on where it stopped.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

names=(cifar10-linf cifar10-l2)
[ $# -gt 0 ] && names=("$@")

for name in "${names[@]}"; do
    case $name in
        cifar10-linf) recipe=cifar10-residual-linf threat=linf eps=8/255 ;;
        cifar10-l2) recipe=cifar10-residual-l2 threat=l2 eps=0.5 ;;
        *) echo "There is no network $name: choose among ${names[*]}." >&2 && exit 2 ;;
    esac
    trained "networks/$recipe" "$recipe"
    gradreg evaluate "$runs/networks/$recipe" --data-dir "$data" --threat "$threat" --images 1000 --autoattack "$threat=$eps"
    gradreg ship "$runs/networks/$recipe" --name "$name" --evaluation "$runs/networks/$recipe/evaluation" --replace \
        --note "The images were lossy JPEG copies of CIFAR-10, so compare with figures of others with care."
done
