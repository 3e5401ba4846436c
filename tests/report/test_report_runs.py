"""Training runs side by side: how they differ, their best epochs, and what they cost."""

import json
from pathlib import Path
from typing import Any

import pytest

from gradreg.cli import main
from gradreg.errors import DataError
from gradreg.report.runs import Run, cost, middle, read, runs_table
from gradreg.report.settings import differences
from gradreg.runs.directory import RunDirectory

GRADIENT = {"name": "gradient", "threat": "linf", "eps": 8 / 255, "h": 7 / 255, "lazy": 1}


def wrote(
    folder: Path, clean: float = 0.6, rate: float = 100.0, trained: dict[str, str] | None = None, **settings: Any
) -> Path:
    """A run of three epochs, the second of them the best, like no other but in those settings.

    `trained` says by which code and where, as runs do since they write it down.
    """
    config = {"seed": 0, "workers": 2, "data": "cifar10", "model": {"name": "compact", "activation": "gelu"}}
    run = RunDirectory(folder)
    run.start(config | {"objective": GRADIENT} | settings)
    for epoch, (share, best) in enumerate([(0.3, True), (clean, True), (0.9, False)], start=1):
        figures = {"clean": share, "probe": share / 2, "single_step": share / 2, "grad_norm": 10.0, "hours": 0.1}
        counts = {"epoch": epoch, "held_out": 1000, "probed": 500, "images_per_second": rate * epoch, "best": best}
        run.add_metrics(counts | figures | (trained or {}))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> list[Path]:
    return [
        wrote(tmp_path / "middle"),
        wrote(tmp_path / "h1", clean=0.7, objective=GRADIENT | {"h": 1 / 255}),
        wrote(tmp_path / "h12", clean=0.5, objective=GRADIENT | {"h": 12 / 255}, workers=4),
        wrote(tmp_path / "lazy", rate=160.0, objective=GRADIENT | {"lazy": 4}),
        wrote(tmp_path / "relu", model={"name": "compact", "activation": "relu"}),
        wrote(tmp_path / "plain", clean=0.8, rate=240.0, objective={"name": "undefended"}, clip_norm=1.0),
    ]


def runs_of(sweep: list[Path]) -> list[Run]:
    return [read(folder) for folder in sweep]


def test_a_run_is_told_by_how_it_differs_from_the_middle(sweep: list[Path]) -> None:
    runs = runs_of(sweep)[::-1]
    base = middle(runs)
    assert base.name == "middle", "whatever the order"
    told = {run.name: differences(run.settings, base.settings) for run in runs}
    assert told["middle"] == {}
    assert told["h12"] == {"objective.h": 12 / 255}, "how many workers load images is not how a run was trained"
    assert told["relu"] == {"model.activation": "relu"}
    assert told["plain"] == {"objective.name": "undefended", "clip_norm": 1.0}, "another kind has no h to differ in"


def test_the_middle_is_of_the_commonest_kind(tmp_path: Path) -> None:
    """Two of its kind differ in three settings, and each differs from the one of another kind in its kind alone."""
    one = wrote(tmp_path / "one")
    two = wrote(tmp_path / "two", objective=GRADIENT | {"h": 1 / 255, "lazy": 3, "eps": 6 / 255})
    noise = wrote(tmp_path / "noise", objective={"name": "noise", "sigma": 0.1})
    assert middle([read(noise), read(one), read(two)]).name == "one"


def test_the_figures_are_those_of_the_best_epoch(sweep: list[Path]) -> None:
    first = runs_table(runs_of(sweep)).rows[0]
    told, clean, probe, last, _, slope, epoch, ratio = first.cells
    assert (told.text, epoch.text) == ("nothing", "2 of 3")
    assert (clean.value, probe.value, last.value, slope.value) == pytest.approx((0.6, 0.3, 0.45, 10.0))
    assert clean.note == "56.9–63.1 %", "the Clopper-Pearson interval of 600 out of 1,000"
    assert ratio.value == pytest.approx(2.4)


def test_cost_is_against_the_undefended_run_of_the_same_network(sweep: list[Path]) -> None:
    runs = runs_of(sweep)
    assert cost(runs[3], runs) == pytest.approx(1.5)
    assert cost(runs[4], runs) == pytest.approx(2.4), "another activation is still the same network"
    assert cost(runs[0], runs[:2]) is None


def test_hours_of_another_machine_tell_no_cost(tmp_path: Path) -> None:
    here, there = ({"commit": "abc1234", "machine": name} for name in ("a fast one", "a slow one"))
    plain = wrote(tmp_path / "plain", rate=240.0, trained=here, objective={"name": "undefended"})
    beside, elsewhere = wrote(tmp_path / "beside", trained=here), wrote(tmp_path / "elsewhere", trained=there)
    untold = wrote(tmp_path / "untold")
    runs = runs_of([plain, beside, elsewhere, untold])
    assert [cost(run, runs) for run in runs] == [1.0, pytest.approx(2.4), None, None]


def test_a_run_names_the_code_that_trained_it(tmp_path: Path) -> None:
    told = wrote(tmp_path / "told", trained={"commit": "abc1234"})
    RunDirectory(told).add_metrics({**read(told).epochs[-1], "epoch": 4, "commit": "def5678"})
    table = runs_table(runs_of([told, wrote(tmp_path / "untold")]))
    assert table.columns[-1].heading == "commit"
    assert [row.cells[-1].text for row in table.rows] == ["abc1234, def5678", "–"]
    assert runs_table(runs_of([tmp_path / "untold"])).columns[-1].heading == "× undefended", "nothing to say, no column"


def test_the_command_writes_what_the_table_says(
    sweep: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["runs", *map(str, sweep)])
    assert "| lazy | lazy 4 | 60.0 %" in capsys.readouterr().out
    target = tmp_path / "runs.json"
    main(["runs", *map(str, sweep), "--format", "json", "-o", str(target)])
    assert capsys.readouterr().out == f"The table is in {target}.\n"
    assert [row["name"] for row in json.loads(target.read_text())["tables"][0]["rows"]] == [p.name for p in sweep]


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no run .* name folders that `gradreg train` wrote"):
        read(tmp_path)
    (tmp_path / "config.toml").write_text("seed = 0\n")
    with pytest.raises(DataError, match="without a finished epoch"):
        read(tmp_path)
    with pytest.raises(DataError, match="There is no run to compare"):
        runs_table([])
