"""What each setting does: the figure of a sweep, on runs that are made up."""

from pathlib import Path

import pytest

from docs.make.sweep import draw_sweep, panels, sweeps, tick_labels
from gradreg.errors import ConfigError, DataError
from gradreg.report.tables.runs import Run
from swept import runs_of, swept


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    return runs_of(swept(tmp_path))


def test_a_sweep_is_a_setting_changed_by_itself(runs: list[Run]) -> None:
    found = {sweep.key: sweep for sweep in sweeps(runs)}
    assert list(found) == ["objective.h", "objective.lazy", "model.activation"]
    assert [run.name for run in found["objective.h"].runs] == ["h1", "middle", "h12"], "numbers in rising order"
    assert found["model.activation"].values == ("gelu", "relu")


def test_numbers_are_joined_and_names_are_not(runs: list[Run]) -> None:
    shown = {axes.get_title(): [line.get_linestyle() for line in axes.lines] for axes in panels(runs).axes}
    assert {title: "-" in lines for title, lines in shown.items() if title} == {
        "h": True,
        "lazy": True,
        "model.activation": False,
    }


def test_long_names_below_a_panel_take_turns_in_two_lines() -> None:
    assert tick_labels(["1/255", "3/255", "7/255", "12/255"]) == ["1/255", "3/255", "7/255", "12/255"]
    crowded = tick_labels(["gradient", "adversarial", "n-fgsm", "noise", "trades"])
    assert crowded == ["gradient", "\nadversarial", "n-fgsm", "\nnoise", "trades"]


def test_the_figure_is_the_same_bytes_each_time(runs: list[Run], tmp_path: Path) -> None:
    one, two = (draw_sweep(runs, tmp_path / f"{name}.svg").read_bytes() for name in ("one", "two"))
    assert one == two
    with pytest.raises(ConfigError, match=r"\.svg, \.png, \.pdf"):
        draw_sweep(runs, tmp_path / "sweep.gif")
    with pytest.raises(DataError, match="there is no sweep to draw"):
        draw_sweep(runs[:1], tmp_path / "none.svg")
