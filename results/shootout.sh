#!/usr/bin/env bash
# results/shootout.sh RUNS DATA [NAME …]
# Every cheap defence, 7-step adversarial training and TRADES against l∞ attacks of radius 8/255 on CIFAR-10: one network, one
# optimizer, as many epochs, the same average of the weights and the same label smoothing, three seeds; evaluated by `standard`.
# A name is a row, as n-fgsm-seed1, or a method, as n-fgsm, for its three seeds. Each call uses one core, so that two calls with
# other names can run side by side. Interrupted, the same command goes on where it stopped.
# SHOOTOUT_SET has more settings for all rows ("epochs=30 label_smoothing=0.1"), SHOOTOUT_EVALUATE more options of
# gradreg evaluate ("--images 10000"). All rows together take about 3 core hours per epoch without a GPU, and their evaluations.
set -euo pipefail
runs=$1 data=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
source "$here/steps.sh"
export OMP_NUM_THREADS=1

radius='threat = "linf", eps = "8/255"'
noisy="name = \"gradient\", $radius, h = \"8/255\", noise = \"8/255\", ramp_epochs = 1.5, alignment = true, omega = 50"
declare -A objectives=(
    [undefended]='name = "undefended"'
    [at]="name = \"adversarial\", $radius, steps = 7"
    [trades]="name = \"trades\", $radius, ramp_epochs = 1.5"
    [fgsm-rs]="name = \"fgsm-rs\", $radius, ramp_epochs = 1.5"
    [n-fgsm]="name = \"n-fgsm\", $radius, ramp_epochs = 1.5"
    # Each batch serves four updates, as in the FastAT benchmark: as many updates as the others, on a quarter of the batches.
    [free]="name = \"free\", $radius, replays = 4, ramp_epochs = 1.5"
    # Its own uneven smoothing is off: all rows have the same. The weight rises over the run, as in the paper.
    [label-start]='name = "label-start", eps = "8/255", smoothing = 0, weight_epochs = EPOCHS, ramp_epochs = 1.5'
    [prior-guided]="name = \"prior-guided\", $radius, ramp_epochs = 1.5"
    [penalty]='name = "gradient", threat = "linf", eps = "8.5/255", h = "7/255", h_jitter = 0.4, jitter = "step", ramp_epochs = 1.5'
    [noisy]="$noisy"
    [noisy-slope]="$noisy, output_slope = 1.0"
    [noisy-second]="$noisy, second_step = 0.7"
)
order=(undefended at noisy penalty n-fgsm fgsm-rs free label-start prior-guided noisy-slope noisy-second trades)

more=(${SHOOTOUT_SET-})
epochs=6
for setting in "${more[@]}"; do [[ $setting == epochs=* ]] && epochs=${setting#epochs=}; done
# A failed method is a row too: it goes on to the end, and its best epoch on held-out images is evaluated.
common=("epochs=$epochs" ema=0.998 label_smoothing=0.1 clip_norm=3.0 on_overfitting=ignore)

row() { # METHOD SEED
    local name="$1-seed$2" objective=${objectives[$1]//EPOCHS/$epochs} probe=()
    # Under a probe of 8/255 its first epoch would be its best.
    [ "$1" = undefended ] && probe=(probe.eps=1/255)
    trained "shootout/$name" cifar10-compact-at "seed=$2" "objective={ $objective }" "${common[@]}" "${probe[@]}" "${more[@]}"
    evaluated "shootout/$name" . --threat linf ${SHOOTOUT_EVALUATE-}
}

# Seed by seed, so that a first comparison of all methods is there early.
names=()
for seed in 0 1 2; do for method in "${order[@]}"; do names+=("$method-seed$seed"); done; done
if [ $# -gt 0 ]; then
    chosen=()
    for name in "$@"; do
        method=${name%-seed[012]}
        [ -n "${objectives[$method]-}" ] || { echo "There is no row $name: choose among ${order[*]}." >&2 && exit 2; }
        if [ "$name" = "$method" ]; then chosen+=("$name-seed0" "$name-seed1" "$name-seed2"); else chosen+=("$name"); fi
    done
    names=("${chosen[@]}")
fi
for name in "${names[@]}"; do row "${name%-seed*}" "${name##*-seed}"; done

[ $# -gt 0 ] && exit
gradreg report "$here"/shootout/* --output "$runs/shootout.html"
