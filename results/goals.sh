#!/usr/bin/env bash
# results/goals.sh RUNS DATA [NAME …]
# The rows behind the goals of docs/robustness.md, and the trials that their settings were chosen by. A row trains seven-step adversarial
# training (at), the penalty at noisy images (noisy) or a cheaper form of it (cheap) with three seeds, and is judged by `standard` attacks
# on all test images, into results/goals. A trial has seed 0 and is judged on the images that its training held out, into results/trials.
# A name is a trial, as n-base, a row, as near-l2-at-seed1, or a row without its seed for all three. Each call uses one core, so that
# two calls with other names can run side by side. Interrupted, the same command goes on where it stopped.
# GOALS_SET has more settings for all of them ("epochs=30").
set -euo pipefail
source "$(dirname "$0")/steps.sh"
export OMP_NUM_THREADS=1

# What every network here is trained with, and every one with the penalty. With eps = h its loss is that at one point, which bf16 can
# compute; where it is not, autocast=off says so.
common=(amp=bf16 held_out=2000 probe.images=500 clip_norm=3.0 on_overfitting=ignore)
noisy=(objective.autocast=keep objective.alignment=false objective.omega=0)

# THREAT RADIUS of each kind of row.
declare -A radii=(
    [near-linf]="linf 8/255" [near-l2]="l2 0.5"
    [far-linf]="linf 0.1" [far-l2]="l2 1.5" [far-cifar]="linf 16/255"
)
# The trials' two largest steps, for adversarial training and the penalty alike: no random crops, and Muon instead of SGD.
flip="batch_size=64 augment=['flip']"
muon="augment=['flip'] optimizer={name=\"muon\",lr=0.02,weight_decay=0.01}"
# RECIPE SETTING …: what the trials chose.
declare -A rows=(
    [near-linf-at]="cifar10-compact-at label_smoothing=0.1 $muon"
    [near-linf-noisy]="cifar10-compact-noisy-linf epochs=9 label_smoothing=0.1 $muon"
    [near-linf-cheap]="cifar10-compact-noisy-linf epochs=4 label_smoothing=0.1 $muon"
    [near-l2-at]="cifar10-compact-at-l2 label_smoothing=0.1 $muon"
    [near-l2-noisy]="cifar10-compact-noisy-l2 epochs=9 label_smoothing=0.1 $muon"
    [near-l2-cheap]="cifar10-compact-noisy-l2 epochs=4 label_smoothing=0.1 $muon"
    [far-linf-at]="fashion-mnist-at ema=0.9957"
    [far-linf-noisy]="fashion-mnist-noisy-linf"
    [far-l2-at]="fashion-mnist-at-l2 ema=0.9957"
    [far-l2-noisy]="fashion-mnist-noisy-l2"
    [far-cifar-at]="cifar10-compact-at objective.eps=16/255 probe.eps=16/255"
    [far-cifar-noisy]="cifar10-compact-noisy-linf-16 epochs=7"
)
# KIND RECIPE SETTING …: the kind of row that a trial chooses for. As many for adversarial training as for the penalty; those that begin
# with c- choose the cheap row, by what is tried for adversarial training too.
ours="near-linf cifar10-compact-noisy-linf"
at_l2="near-l2 cifar10-compact-at-l2"
ours_l2="near-l2 cifar10-compact-noisy-l2 epochs=9"
far_at="far-linf fashion-mnist-at ema=0.9957"
far="far-linf fashion-mnist-noisy-linf epochs=15"
far_at_l2="far-l2 fashion-mnist-at-l2 ema=0.9957"
far_l2="far-l2 fashion-mnist-noisy-l2 epochs=15"
declare -A trials=(
    [at-base]="near-linf cifar10-compact-at"
    [at-ls]="near-linf cifar10-compact-at label_smoothing=0.1"
    [at-lr4]="near-linf cifar10-compact-at optimizer.lr=0.4"
    [at-eps9]="near-linf cifar10-compact-at objective.eps=9/255"
    [at-lr1]="near-linf cifar10-compact-at optimizer.lr=0.1"
    [at-ema5]="near-linf cifar10-compact-at ema=0.995"
    [at-b64-flip]="near-linf cifar10-compact-at label_smoothing=0.1 $flip"
    [at-muon]="near-linf cifar10-compact-at label_smoothing=0.1 $muon"
    [at-muon-sharp]="near-linf cifar10-compact-at $muon"
    [at-muon-lr1]="near-linf cifar10-compact-at label_smoothing=0.1 $muon optimizer.lr=0.01"
    [at-muon-crop2]="near-linf cifar10-compact-at label_smoothing=0.1 $muon augment=[{name=\"crop\",padding=2},'flip']"
    [at-muon-eps9]="near-linf cifar10-compact-at label_smoothing=0.1 $muon objective.eps=9/255"
    [n-base]="$ours epochs=7"
    [n-ls]="$ours epochs=7 label_smoothing=0.1"
    [n-noise4]="$ours epochs=7 objective.noise=4/255"
    [n9-base]="$ours epochs=9"
    [n9-eps9]="$ours epochs=9 objective.eps=9/255 objective.h=9/255"
    [n9-eps9-ls]="$ours epochs=9 objective.eps=9/255 objective.h=9/255 label_smoothing=0.1"
    [n9-b64-flip]="$ours epochs=9 $flip"
    [n9-muon]="$ours epochs=9 $muon"
    [n9-muon-ls]="$ours epochs=9 $muon label_smoothing=0.1"
    [n9-muon-eps10]="$ours epochs=9 $muon objective.eps=10/255 objective.h=10/255 objective.noise=10/255"
    [n7-muon-second]="$ours epochs=7 $muon objective.second_step=0.3"
    [n9-muon-noise16]="$ours epochs=9 $muon objective.noise=16/255"
    [c-e4]="$ours epochs=4"
    [c-e4-ls]="$ours epochs=4 label_smoothing=0.1"
    [c-e4-ema5]="$ours epochs=4 ema=0.995"
    [c-e4-b64]="$ours epochs=4 batch_size=64"
    [c-e4-b64-flip]="$ours epochs=4 $flip"
    [c-e4-muon]="$ours epochs=4 $muon"
    [c-e4-muon-ls]="$ours epochs=4 $muon label_smoothing=0.1"
    [c-lazy4]="$ours objective.lazy=4 objective.autocast=off"
    [far-at-base]="$far_at"
    [far-at-muon-lr1]="$far_at $muon optimizer.lr=0.01"
    [far-at-muon-ls]="$far_at $muon label_smoothing=0.1"
    [far-at-muon]="$far_at $muon"
    [far-at-muon-crop]="$far_at $muon augment=[{name=\"crop\",padding=2,fill=0.0},'flip']"
    [far-n11-muon-second]="$far $muon epochs=11 objective.second_step=0.5"
    [far-n9-muon-two]="$far $muon epochs=9 objective.second_step=1e9"
    [far-n15-base]="$far"
    [far-n15-muon]="$far $muon"
    [far-n15-muon-crop]="$far $muon augment=[{name=\"crop\",padding=2,fill=0.0},'flip']"
    [far-l2-at-base]="$far_at_l2"
    [far-l2-at-muon]="$far_at_l2 $muon"
    [far-l2-n15-base]="$far_l2"
    [far-l2-n15-muon]="$far_l2 $muon"
    [l2-at-base]="$at_l2"
    [l2-at-b64-flip]="$at_l2 label_smoothing=0.1 $flip"
    [l2-at-ls]="$at_l2 label_smoothing=0.1"
    [l2-at-lr4]="$at_l2 optimizer.lr=0.4"
    [l2-at-eps6]="$at_l2 objective.eps=0.6"
    [l2-n9-base]="$ours_l2"
    [l2-n9-b64-flip]="$ours_l2 $flip"
    [l2-n9-ls]="$ours_l2 label_smoothing=0.1"
    [l2-n9-noise25]="$ours_l2 objective.noise=0.25"
    [l2-n9-eps6]="$ours_l2 objective.eps=0.6 objective.h=0.6"
)

network() { # NAME FOLDER SPLIT KIND RECIPE SETTING …
    local name=$1 folder=$2 split=$3 kind=$4 recipe=$5 settings=("${common[@]}") threat radius
    [ -e "$here/$folder/$name.json" ] && return
    [[ $recipe == *-noisy-* ]] && settings+=("${noisy[@]}")
    # Of two values of a setting the last one holds.
    trained "${kind%%-*}/$name" "$recipe" "${settings[@]}" "${@:6}" ${GOALS_SET-}
    read -r threat radius <<< "${radii[$kind]}"
    judged "${kind%%-*}/$name" "$folder" --threat "$threat" --eps "$radius" --split "$split"
}

names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(printf '%s\n' "${!trials[@]}" | sort && printf '%s\n' "${!rows[@]}" | sort)
for name in "${names[@]}"; do
    [ -n "${trials[$name]-}${rows[${name%-seed[012]}]-}" ] && continue
    echo "There is no trial or row $name: choose among ${!trials[*]} ${!rows[*]}." >&2 && exit 2
done
for name in "${names[@]}"; do
    if [ -n "${trials[$name]-}" ]; then
        read -r kind settings <<< "${trials[$name]}"
        network "$name" trials held-out "$kind" $settings
        continue
    fi
    for row in $(with_seeds "$name"); do
        method=${row%-seed?}
        network "$row" goals test "${method%-*}" ${rows[$method]} "seed=${row##*-seed}"
    done
done
[ $# -gt 0 ] || made docs/robustness.md
