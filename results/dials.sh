#!/usr/bin/env bash
# results/dials.sh RUNS DATA [NAME …]
# What does each dial of the penalty do at a near radius, CIFAR-10 at l∞ 8/255, and at a far one, Fashion-MNIST at l∞ 0.1? One setting
# changed at a time, seed 0, in single precision since bf16 is refused for some; judged by `standard` attacks on 2,000 held-out images,
# into results/dials. About 4 core hours without a GPU. A name is a run, as near-noise-0, or near or far for all of theirs. Each call
# uses one core, so that two calls with other names can run side by side. Interrupted, the same command goes on where it stopped.
# DIALS_SET has more settings for all of them ("epochs=30").
set -euo pipefail
source "$(dirname "$0")/steps.sh"
export OMP_NUM_THREADS=1

# The radius is 1 here: what each dial is set to, in parts of it where it is a length.
dials=(
    middle noise-0 noise-0.5 noise-2 h-0.25 h-0.5 eps-0.75 eps-1.25 slope-1 slope-4 second-0.7 lazy-2 lazy-4
    smoothing-0.1 smoothing-0.3 ema-0.9 ema-0.99 relu silu
)
all=()
for place in near far; do for dial in "${dials[@]}"; do all+=("$place-$dial"); done; done
names=()
for name in "$@"; do
    case $name in
        near | far) for dial in "${dials[@]}"; do names+=("$name-$dial"); done ;;
        *)
            [[ " ${all[*]} " == *" $name "* ]] || { echo "There is no run $name: choose among near, far, ${all[*]}." >&2 && exit 2; }
            names+=("$name")
            ;;
    esac
done
[ $# -gt 0 ] || names=("${all[@]}")

part() { python3 -c 'import sys; print(float(sys.argv[1]) * float(sys.argv[2]))' "$1" "$2"; }

for name in "${names[@]}"; do
    [ -e "$here/dials/$name.json" ] && continue
    dial=${name#*-} value=${name##*-}
    case ${name%%-*} in
        near) recipe=cifar10-compact-noisy-linf radius=0.03137254901960784 eps=8/255 epochs=4 ;;
        far) recipe=fashion-mnist-noisy-linf radius=0.1 eps=0.1 epochs=6 ;;
    esac
    case $dial in
        middle) changed=() ;;
        noise-* | h-* | eps-*) changed=("objective.${dial%-*}=$(part "$radius" "$value")") ;;
        slope-*) changed=("objective.output_slope=$value") ;;
        second-*) changed=("objective.second_step=$value") ;;
        lazy-*) changed=("objective.lazy=$value") ;;
        smoothing-*) changed=("label_smoothing=$value") ;;
        ema-*) changed=("ema=$value") ;;
        *) changed=("model.activation=\"$dial\"") ;;
    esac
    common=(
        "epochs=$epochs" "augment=['flip']" 'optimizer={name="muon",lr=0.02,weight_decay=0.01}' held_out=2000 probe.images=500
        clip_norm=3.0 on_overfitting=ignore objective.alignment=false objective.omega=0
    )
    trained "dials/$name" "$recipe" "${common[@]}" "${changed[@]}" ${DIALS_SET-}
    judged "dials/$name" dials --threat linf --eps "$eps" --split held-out
done
[ $# -gt 0 ] || made docs/robustness.md docs/dials-near.svg docs/dials-far.svg
