#!/usr/bin/env bash
# results/reference.sh RUNS DATA [SEED …]
# Trains and evaluates the rows of docs/results.md and puts the evaluations into results/. AutoAttack confirms the first seed.
# Without a GPU about 13 core hours, and 5 for each other seed. Interrupted, the same command goes on where it stopped.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

row() { # FAMILY OBJECTIVE THREAT [RADIUS]
    local data_set=${1%-compact} confirm=()
    [ -n "${4-}" ] && [ "$seed" = "$first" ] && confirm=(--autoattack "$3=$4")
    trained "$data_set-$2-seed$seed" "$1-$2" "seed=$seed"
    evaluated "$data_set-$2-seed$seed" "$data_set" --threat "$3" "${confirm[@]}"
}

first=${1:-0}
for seed in "${@:-0}"; do
    row cifar10-compact undefended linf,l2
    for objective in linf linf-lazy at n-fgsm; do row cifar10-compact "$objective" linf 8/255; done
    for objective in l2 at-l2; do row cifar10-compact "$objective" l2 0.5; done
    row fashion-mnist undefended linf,l2
    for objective in linf at; do row fashion-mnist "$objective" linf 0.1; done
    for objective in l2 at-l2; do row fashion-mnist "$objective" l2 1.5; done
done

made docs/results.md docs/cost.svg
