#!/usr/bin/env bash
# results/overfitting.sh RUNS DATA [NAME …]
# Do the figures that a step logs for nothing see catastrophic overfitting before the probe does? The same runs without noise at the base
# point, which is FGSM training and overfits at these radii, and with it: Fashion-MNIST at l∞ 0.1, CIFAR-10 at 16/255, three seeds.
# Puts their records, with a line for every tenth step, into results/overfitting. About 3 core hours without a GPU; each call uses
# one core. If runs are named, as cifar10-plain-seed0, trains those alone. Interrupted, the same command goes on where it stopped.
# OVERFITTING_SET has more settings for all runs ("epochs=30").
set -euo pipefail
source "$(dirname "$0")/steps.sh"
export OMP_NUM_THREADS=1

names=()
for seed in 0 1 2; do
    for name in fashion-mnist-plain fashion-mnist-noisy cifar10-plain cifar10-noisy; do names+=("$name-seed$seed"); done
done
[ $# -gt 0 ] && names=("$@")

for name in "${names[@]}"; do
    case $name in
        fashion-mnist-*-seed[012]) recipe=fashion-mnist-noisy-linf ;;
        cifar10-*-seed[012]) recipe=cifar10-compact-noisy-linf-16 ;;
        *) recipe= ;;
    esac
    case $name in
        *-plain-*) changed=(objective.noise=0) ;;
        *-noisy-*) changed=() ;;
        *) recipe= ;;
    esac
    [ -n "$recipe" ] || { echo "There is no run $name, as cifar10-plain-seed0." >&2 && exit 2; }
    common=(objective.omega=10 log_steps=10 on_overfitting=ignore)
    trained "overfitting/$name" "$recipe" "seed=${name##*-seed}" "${common[@]}" "${changed[@]}" ${OVERFITTING_SET-}
    mkdir -p "$here/overfitting/$name"
    cp "$runs/overfitting/$name/"{config.toml,metrics.jsonl,steps.jsonl} "$here/overfitting/$name"
done
