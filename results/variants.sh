#!/usr/bin/env bash
# results/variants.sh RUNS DATA [SEED]
# cifar10-compact-linf with changed settings, and adversarial training with a smaller radius, trained in full and evaluated: the
# table of docs/variants.md. About 25 minutes of a core each, an hour the last one. Interrupted, the same command goes
# on where it stopped.
set -euo pipefail
source "$(dirname "$0")/steps.sh"
seed=${1:-1}

for name in eps6 eps6-lazy2 eps8 eps8-clip3 eps9-clip3; do
    changed=(objective.eps="${name:3:1}/255" clip_norm=1.0)
    case $name in
        *-lazy2) changed+=(objective.lazy=2) ;;
        *-clip3) changed+=(clip_norm=3.0) ;;
    esac
    trained "cifar10-linf-$name-seed$seed" cifar10-compact-linf "seed=$seed" "${changed[@]}"
    evaluated "cifar10-linf-$name-seed$seed" variants --threat linf
done

trained "cifar10-at-eps6-seed$seed" cifar10-compact-at "seed=$seed" objective.eps=6/255
evaluated "cifar10-at-eps6-seed$seed" variants --threat linf

made docs/variants.md
