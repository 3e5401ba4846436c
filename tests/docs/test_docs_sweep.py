"""What each setting does: the figure of a sweep, on runs that are made up."""

from pathlib import Path
from typing import Any

import pytest

from docs.make.sweep import draw_sweep, panels, sweeps, tick_labels
from gradreg.errors import ConfigError, DataError
from gradreg.report.tables.runs import Run

MIDDLE = {
    "data": "cifar10",
    "model.name": "compact",
    "model.activation": "gelu",
    "objective.name": "gradient",
    "objective.h": 7 / 255,
    "objective.lazy": 1,
}


def run(name: str, clean: float = 0.6, rate: float = 100.0, **changed: Any) -> Run:
    """A run of one epoch; the settings' dots are written as two underscores."""
    settings = MIDDLE | {key.replace("__", "."): value for key, value in changed.items()}
    epoch = {"clean": clean, "probe": clean / 2, "held_out": 1000, "probed": 500, "images_per_second": rate}
    return Run(name, settings, ({**epoch, "epoch": 1, "best": True},))


RUNS = [
    run("middle"),
    run("h12", clean=0.5, objective__h=12 / 255),
    run("h1", clean=0.7, objective__h=1 / 255),
    run("lazy", rate=160.0, objective__lazy=4),
    run("relu", model__activation="relu"),
    run("plain", clean=0.8, rate=240.0, objective__name="undefended", clip_norm=1.0),
]


def test_a_sweep_is_a_setting_changed_by_itself() -> None:
    found = {sweep.key: sweep for sweep in sweeps(RUNS)}
    assert list(found) == ["objective.h", "objective.lazy", "model.activation"]
    assert [run.name for run in found["objective.h"].runs] == ["h1", "middle", "h12"], "numbers in rising order"
    assert found["model.activation"].values == ("gelu", "relu")


def test_numbers_are_joined_and_names_are_not() -> None:
    shown = {axes.get_title(): [line.get_linestyle() for line in axes.lines] for axes in panels(RUNS).axes}
    assert {title: "-" in lines for title, lines in shown.items() if title} == {
        "h": True,
        "lazy": True,
        "model.activation": False,
    }


def test_long_names_below_a_panel_take_turns_in_two_lines() -> None:
    assert tick_labels(["1/255", "3/255", "7/255", "12/255"]) == ["1/255", "3/255", "7/255", "12/255"]
    crowded = tick_labels(["gradient", "adversarial", "n-fgsm", "noise", "trades"])
    assert crowded == ["gradient", "\nadversarial", "n-fgsm", "\nnoise", "trades"]


def test_the_figure_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    one, two = (draw_sweep(RUNS, tmp_path / f"{name}.svg").read_bytes() for name in ("one", "two"))
    assert one == two
    with pytest.raises(ConfigError, match=r"\.svg, \.png, \.pdf"):
        draw_sweep(RUNS, tmp_path / "sweep.gif")
    with pytest.raises(DataError, match="there is no sweep to draw"):
        draw_sweep(RUNS[:1], tmp_path / "none.svg")
