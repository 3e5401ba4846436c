#!/usr/bin/env bash
# results/reference.sh RUNS DATA [SEED …]
# Trains, examines and confirms the rows of docs/results.md, and puts the evaluations into results/: about 10 core hours
# a seed without a GPU. Interrupted, the same command goes on where it stopped.
set -euo pipefail
runs=$1 data=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)

source "$here/steps.sh"

for seed in "${@:-0}"; do
    for objective in undefended linf at l2 at-l2; do
        name=$objective-seed$seed
        trained "cifar10-$name" "cifar10-compact-$objective" "seed=$seed"
        examined "cifar10-$name" cifar10 --threat linf,l2 --autoattack linf=8/255,l2=0.5
    done
    for objective in undefended linf at l2; do
        name=$objective-seed$seed
        trained "fashion-mnist-$name" "fashion-mnist-$objective" "seed=$seed"
        examined "fashion-mnist-$name" fashion-mnist --threat linf,l2 --autoattack linf=0.1,l2=1.5
    done
done

drawn=$(mktemp -d)
gradreg report "$here"/cifar10/* --output "$drawn/report.html" --figures "$drawn"
cp "$drawn/cost.svg" "$here/../docs/cost.svg"
gradreg report --fill "$here/../docs/results.md"
