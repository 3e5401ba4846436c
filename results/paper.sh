#!/usr/bin/env bash
# results/paper.sh RUNS DATA [NAME …]
# The seven rows of the paper's CIFAR-10 tables on the compact network with ReLU, as the paper's networks have: its objectives,
# λ and h as they were, with the optimizer, the schedule and the six epochs of our other rows, and without clipping the weights'
# gradient, as there. If rows are named, trains and evaluates those alone. About 4 core hours without a GPU.
# Interrupted, the same command goes on where it stopped.
set -euo pipefail
source "$(dirname "$0")/steps.sh"

# The authors' adversarial training: steps of 0.43/√3072 per pixel from the image itself, not clipped to the box.
at='name = "adversarial", threat = "linf", steps = 7, step_size = 0.0077582, random_start = false, clip = false'
penalty='name = "gradient", h = 0.01'
names=(undefended l2-0.1 l2-1 linf-0.1 linf-1 at-2 at-8)
[ $# -gt 0 ] && names=("$@")

for name in "${names[@]}"; do
    value=${name##*-}
    case $name in
        undefended) changed=() ;;
        at-[28]) changed=("objective={ $at, eps = \"$value/255\" }" "probe.eps=$value/255") ;;
        # Under a probe of the strong recipes' radius the first epochs of these weak ones would be their best.
        l2-0.1 | l2-1) changed=("objective={ $penalty, threat = \"l2\", lam = $value }" probe.threat=l2 probe.eps=0.1) ;;
        linf-0.1 | linf-1) changed=("objective={ $penalty, threat = \"linf\", lam = $value }" probe.eps=2/255) ;;
        *) echo "There is no row $name in the paper's tables." >&2 && exit 2 ;;
    esac
    # The rows of the paper's table of certificates. With 10,000 samples they end at a radius of about 0.8.
    certified=()
    [[ $name == undefended || $name == l2-1 ]] && certified=(--smoothing 0.25 --samples 10000)
    trained "paper/$name" cifar10-compact-undefended model.activation=relu "${changed[@]}"
    evaluated "paper/$name" . --threat linf,l2 --images 500 "${certified[@]}"
done

[ $# -gt 0 ] && exit
gradreg report "$here"/paper/* --paper --output "$runs/paper.html"
made docs/paper.md docs/paper-linf.svg docs/paper-l2.svg
