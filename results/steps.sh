# Sourced by the scripts beside it: takes RUNS and DATA from their arguments, and knows the steps that they are made of. Each step
# goes on where an earlier call stopped.
[ $# -ge 2 ] || { sed -n 2p "$0" >&2 && exit 2; }
mkdir -p "$1" "$2"
runs=$(cd "$1" && pwd) data=$(cd "$2" && pwd) here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
shift 2

trained() { # NAME RECIPE [SETTING …]
    local name=$1 recipe=$2
    shift 2
    if [ -e "$runs/$name/config.toml" ]; then
        gradreg train --run "$runs/$name" --resume --data-dir "$data"
    else
        gradreg train "$recipe" --run "$runs/$name" --data-dir "$data" "${@/#/--set=}"
    fi
}

evaluated() { # NAME FOLDER [OPTION …]
    local name=$1 out="$here/$2/$1"
    shift 2
    [ -e "$out/evaluation.json" ] && return
    gradreg evaluate "$runs/$name" --data-dir "$data" --out "$runs/$name/evaluation" "$@"
    mkdir -p "$out"
    # The one that says that all is done comes last. Without a correctly classified image there is no gallery.
    for file in gallery.safetensors images.csv evaluation.json; do
        [ -e "$runs/$name/evaluation/$file" ] && cp "$runs/$name/evaluation/$file" "$out"
    done
}

judged() { # NAME FOLDER [OPTION …]
    local name=$1 folder=$2
    shift 2
    (cd "$here/.." && python -m bench verdict "$runs/$name" --data-dir "$data" --out "$here/$folder" --work "$runs/verdicts/$folder" "$@")
}

with_seeds() { # NAME …
    # Each on a line; a name without a seed stands for its three.
    local name seed
    for name in "$@"; do
        case $name in
            *-seed[012]) echo "$name" ;;
            *) for seed in 0 1 2; do echo "$name-seed$seed"; done ;;
        esac
    done
}

made() { # FILE …
    (cd "$here/.." && python -m docs.make "$@")
}
