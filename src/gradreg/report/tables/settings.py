"""Settings of training runs: where two differ, how that is written, and which packaged recipe is nearest."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from gradreg.config import tables
from gradreg.config.fractions import radius_name
from gradreg.objectives import OBJECTIVES
from gradreg.runs import recipes
from gradreg.runs.directory import MACHINE
from gradreg.runs.settings import Config

Flat = Mapping[str, Any]
"""A run's settings by dotted key."""

UNKNOWN = "–"
# Lengths in pixels, which read best as parts of 255.
_PIXELS = ("eps", "h", "h_start", "noise", "step_size")
# Two runs that differ in one of these are not compared setting by setting.
_KIND = ("data", "model.name", "objective.name")
# The seed has a column of its own, and the data decide the rest.
_NOT_COMPARED = ("seed", "model.classes", "model.channels")


def flat(table: Mapping[str, Any]) -> Flat:
    """What a run depends on, by dotted key, without settings of the machine.

    A setting that is younger than the run is at its default, which changes nothing.
    """
    found = _flat(table)
    named = [(key.removesuffix("name"), OBJECTIVES.get(str(of))) for key, of in found.items() if key.endswith(".name")]
    kinds = [("", Config), *((within, kind) for within, kind in named if within.startswith("objective."))]
    for within, kind in kinds if found else ():
        for each in fields(kind) if kind is not None else ():
            default = each.default
            if isinstance(default, str | int | float | tuple):  # as TOML has it
                found.setdefault(within + each.name, list(default) if isinstance(default, tuple) else default)
    return {key: value for key, value in found.items() if key not in MACHINE}


def differences(settings: Flat, base: Flat) -> dict[str, Any]:
    """Settings that differ from the base; where a kind differs, such as that of the objective, only the kind."""
    keys = dict.fromkeys((*base, *settings))
    found = {key: settings.get(key) for key in keys if settings.get(key) != base.get(key)}
    other_kinds = [key.removesuffix("name") for key in found if key.endswith(".name")]
    return {
        key: value
        for key, value in found.items()
        if not any(key.startswith(kind) and key != f"{kind}name" for kind in other_kinds)
    }


def nearest_recipe(settings: Flat) -> tuple[str, dict[str, Any]] | None:
    """The packaged recipe of the same data, network and objective that differs least, and the changed settings.

    The first of equals; None if there is no such recipe.
    """
    alike = {
        name: differences(settings, recipe)
        for name, recipe in _packaged().items()
        if all(settings.get(key) == recipe.get(key) for key in _KIND)
    }
    if not alike:
        return None
    changed = {name: {k: v for k, v in found.items() if k not in _NOT_COMPARED} for name, found in alike.items()}
    name = min(changed, key=lambda each: len(changed[each]))
    return name, changed[name]


def changes_text(changed: Mapping[str, Any]) -> str:
    """ "eps 6/255, clip_norm 1"."""
    return ", ".join(f"{short(key)} {setting(key, value)}" for key, value in changed.items())


def setting(key: str, value: Any) -> str:
    """A value as a recipe would have it, with lengths as parts of 255 where they are."""
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return radius_name(value) if key.rpartition(".")[2] in _PIXELS else f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def short(key: str) -> str:
    """As "objective.h" is h, "objective.name" is objective, and "probe.eps" stays, since there is another eps."""
    return key.removesuffix(".name").removeprefix("objective.")


@cache
def _packaged() -> dict[str, Flat]:
    return {name: flat(tables.plain(recipes.config(name))) for name in recipes.names()}


def _flat(table: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{within}{key}.") if isinstance(value, Mapping) else {f"{within}{key}": value}
    return flat
