#!/usr/bin/env bash
# results/shootout.sh RUNS DATA [NAME …]
# Every cheap defence, adversarial training with 7 steps and with 2, and TRADES against l∞ attacks of radius 8/255 on CIFAR-10: one
# network, Muon and flips alone, which the trials of goals.sh chose, as many epochs, the same average of the weights, label smoothing and
# bf16, three seeds; judged by `standard` attacks on the first 2,000 test images, into results/shootout. About 2.5 core hours per seed.
# A name is a row, as n-fgsm-seed1, or a method, as n-fgsm, for its three seeds. Each call uses one core, so that two calls with
# other names can run side by side. Interrupted, the same command goes on where it stopped.
# SHOOTOUT_SET has more settings for all rows ("epochs=30 label_smoothing=0.1").
set -euo pipefail
source "$(dirname "$0")/steps.sh"
export OMP_NUM_THREADS=1

radius='threat = "linf", eps = "8/255"'
noisy="name = \"gradient\", $radius, h = \"8/255\", noise = \"8/255\", ramp_epochs = 1.5, autocast = \"keep\""
declare -A objectives=(
    [undefended]='name = "undefended"'
    [at]="name = \"adversarial\", $radius, steps = 7"
    [at-2]="name = \"adversarial\", $radius, steps = 2"
    [trades]="name = \"trades\", $radius, ramp_epochs = 1.5"
    [fgsm-rs]="name = \"fgsm-rs\", $radius, ramp_epochs = 1.5"
    [n-fgsm]="name = \"n-fgsm\", $radius, ramp_epochs = 1.5"
    # Each batch serves four updates, as in the FastAT benchmark: as many updates as the others, on a quarter of the batches.
    [free]="name = \"free\", $radius, replays = 4, ramp_epochs = 1.5"
    # Its own uneven smoothing is off: all rows have the same. The weight rises over the run, as in the paper.
    [label-start]='name = "label-start", eps = "8/255", smoothing = 0, weight_epochs = EPOCHS, ramp_epochs = 1.5'
    [prior-guided]="name = \"prior-guided\", $radius, ramp_epochs = 1.5"
    # With eps above h the loss is no mean of two losses, so its passes stay in float32.
    [penalty]='name = "gradient", threat = "linf", eps = "8.5/255", h = "7/255", h_jitter = 0.4, jitter = "step", ramp_epochs = 1.5'
    [noisy]="$noisy"
    [noisy-slope]="$noisy, output_slope = 1.0"
    [noisy-second]="$noisy, second_step = 0.7"
)
order=(undefended at at-2 noisy penalty n-fgsm fgsm-rs free label-start prior-guided noisy-slope noisy-second trades)

more=(${SHOOTOUT_SET-})
epochs=6
for setting in "${more[@]}"; do [[ $setting == epochs=* ]] && epochs=${setting#epochs=}; done
# A failed method is a row too: it goes on to the end, and its best epoch on held-out images is judged.
common=(
    "epochs=$epochs" "augment=['flip']" 'optimizer={name="muon",lr=0.02,weight_decay=0.01}'
    amp=bf16 ema=0.998 label_smoothing=0.1 clip_norm=3.0 on_overfitting=ignore
)

row() { # METHOD SEED
    local name="$1-seed$2" objective=${objectives[$1]//EPOCHS/$epochs} probe=()
    # Under a probe of 8/255 its first epoch would be its best.
    [ "$1" = undefended ] && probe=(probe.eps=1/255)
    [ -e "$here/shootout/$name.json" ] && return
    trained "shootout/$name" cifar10-compact-at "seed=$2" "objective={ $objective }" "${common[@]}" "${probe[@]}" "${more[@]}"
    judged "shootout/$name" shootout --threat linf --eps 8/255 --images 2000
}

names=("$@")
# Seed by seed, so that a first comparison of all methods is there early.
[ $# -gt 0 ] || for seed in 0 1 2; do for method in "${order[@]}"; do names+=("$method-seed$seed"); done; done
for name in "${names[@]}"; do
    [ -n "${objectives[${name%-seed[012]}]-}" ] && continue
    echo "There is no row $name: choose among ${order[*]}." >&2 && exit 2
done
for name in $(with_seeds "${names[@]}"); do row "${name%-seed*}" "${name##*-seed}"; done
[ $# -gt 0 ] || made docs/robustness.md docs/shootout.svg
