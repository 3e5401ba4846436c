"""The shipped networks as a table of text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradreg.config import toml
from gradreg.norms import THREATS
from gradreg.reading import one_sentence, read_json, read_toml
from gradreg.runs.networks import CONFIG, ENTRIES, folder, home, names

_HEADINGS = ("name", "data", "network", "clean", "robust", "size")


def listing() -> str:
    """One line per network; robust accuracy is that under the attacks at the usual radii."""
    if not names():
        return f"There are no trained networks in {home()}: `gradreg ship` adds one from a run.\n"
    rows = [_HEADINGS, *(_row(name, folder(name)) for name in names())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return "".join("  ".join(map(str.ljust, row, widths)).rstrip() + "\n" for row in rows)


def _row(name: str, place: Path) -> tuple[str, ...]:
    with one_sentence(place, "remove it, or ship it again"):
        return _columns(name, place)


def _columns(name: str, place: Path) -> tuple[str, ...]:
    config, entries = toml.parse(read_toml(place / CONFIG), str(place / CONFIG)), read_json(place / ENTRIES)
    clean = next(iter(entries.values()))["clean_acc"]
    robust = ", ".join(
        f"{THREATS[threat].symbol} {entry['eps']}: {_robust(entry)}" for threat, entry in entries.items()
    )
    size = sum(path.stat().st_size for path in place.iterdir())
    data, network = str(config["data"]), str(config["model"]["name"])
    return name, data, network, f"{clean} %", robust, f"{size / 1e6:.1f} MB"


def _robust(entry: Mapping[str, Any]) -> str:
    confirmed = entry["autoattack_acc"]
    return f"{entry['reported']} %" if confirmed is None else f"{confirmed} % (AutoAttack)"
