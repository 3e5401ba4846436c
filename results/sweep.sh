#!/usr/bin/env bash
# results/sweep.sh RUNS DATA [NAME …]
# Trains the sweep behind docs/sweeps.md and puts its records, table and figure into the checkout;
# if runs are named, trains those alone. The sweep changes one setting at a time of cifar10-compact-linf with the attacker's
# radius for ε and the weights' gradient clipped at 1, on 15,000 images for four epochs; about 100 minutes on a core.
# Interrupted, the same command goes on where it stopped.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

inner='name = "gradient", threat = "linf", eps = "8/255", h = "7/255", h_jitter = 0.4, jitter = "step", ramp_epochs = 1.0'
names=(undefended middle lazy-2 lazy-4 relu h-1 noise n-fgsm at trades eps-4 eps-12 h-3 h-12 silu clip-3)
[ $# -gt 0 ] && names=("$@")

for name in "${names[@]}"; do
    recipe=cifar10-compact-linf value=${name#*-}
    case $name in
        middle) changed=() ;;
        eps-* | h-*) changed=("objective.${name%-*}=$value/255") ;;
        clip-*) changed=("clip_norm=$value.0") ;;
        lazy-*) changed=("objective.lazy=$value") ;;
        relu | silu) changed=("model.activation=$name") ;;
        noise) changed=("objective={ name = \"noise\", sigma = \"8/255\", inner = { $inner } }") ;;
        # With its own probe of 1/255: under one of 8/255 its first epoch would be its best.
        undefended) recipe=cifar10-compact-$name changed=() ;;
        at | n-fgsm | trades) recipe=cifar10-compact-$name changed=(on_overfitting=rollback) ;;
        *) echo "There is no run $name in this sweep." >&2 && exit 2 ;;
    esac
    # A ramp that is a quarter of the run, as the recipe's is of its own.
    common=(clip_norm=1.0)
    [ "$recipe" = cifar10-compact-linf ] && [ "$name" != noise ] && common+=(objective.eps=8/255 objective.ramp_epochs=1.0)
    trained "$name" "$recipe" epochs=4 held_out=35000 "${common[@]}" "${changed[@]}"
    mkdir -p "$here/sweep/$name"
    cp "$runs/$name/"{config.toml,metrics.jsonl} "$here/sweep/$name"
done

[ $# -gt 0 ] && exit
made docs/sweeps.md docs/sweep.svg
