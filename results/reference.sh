#!/usr/bin/env bash
# results/reference.sh RUNS DATA [SEED …]
# Trains, examines and confirms the rows of docs/results.md, and puts the evaluations into results/: about 10 core hours
# a seed without a GPU. Interrupted, the same command goes on where it stopped.
set -euo pipefail
runs=$1 data=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)

trained() { # NAME RECIPE
    if [ -e "$runs/$1/config.toml" ]; then
        gradreg train --run "$runs/$1" --resume --data-dir "$data"
    else
        gradreg train "$2" --run "$runs/$1" --data-dir "$data" --set "seed=$seed"
    fi
}

examined() { # NAME DATASET THREATS AUTOATTACK
    local out="$here/$2/$1"
    [ -e "$out/evaluation.json" ] && return
    gradreg evaluate "$runs/$1" --data-dir "$data" --threat "$3" --autoattack "$4" --out "$runs/$1/evaluation"
    mkdir -p "$out"
    cp "$runs/$1/evaluation/"{evaluation.json,images.csv,gallery.safetensors} "$out"
}

for seed in "${@:-0}"; do
    for objective in undefended linf at l2 at-l2; do
        name=$objective-seed$seed
        trained "cifar10-$name" "cifar10-compact-$objective"
        examined "cifar10-$name" cifar10 linf,l2 linf=8/255,l2=0.5
    done
    for objective in undefended linf at l2; do
        name=$objective-seed$seed
        trained "fashion-mnist-$name" "fashion-mnist-$objective"
        examined "fashion-mnist-$name" fashion-mnist linf,l2 linf=0.1,l2=1.5
    done
done

drawn=$(mktemp -d)
gradreg report "$here"/cifar10/* --output "$drawn/report.html" --figures "$drawn"
cp "$drawn/cost.svg" "$here/../docs/cost.svg"
gradreg report --fill "$here/../docs/results.md"
