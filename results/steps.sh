# Sourced by the scripts beside it, which set runs, data and here. They go on where an earlier call stopped.

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

made() { # FILE …
    (cd "$here/.." && python -m docs.make "$@")
}
