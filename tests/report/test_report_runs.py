"""Training runs side by side: how they differ, their best epochs, and what they cost."""

import json
from pathlib import Path

import pytest

from gradreg.cli import main
from gradreg.errors import DataError
from gradreg.report.tables.runs import cost, middle, read, runs_table
from gradreg.report.tables.settings import differences
from gradreg.runs.directory import RunDirectory
from swept import GRADIENT, runs_of, swept, wrote


@pytest.fixture
def sweep(tmp_path: Path) -> list[Path]:
    return swept(tmp_path)


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
    with pytest.raises(DataError, match=r"is not a run directory .* name folders that `gradreg train` wrote"):
        read(tmp_path)
    (tmp_path / "config.toml").write_text("seed = 0\n")
    with pytest.raises(DataError, match="without a finished epoch"):
        read(tmp_path)
    with pytest.raises(DataError, match="There is no run to compare"):
        runs_table([])


def test_probes_of_different_radii_have_columns_of_their_own(tmp_path: Path) -> None:
    """An easy probe makes an undefended network look best."""
    near, far = ({"threat": "linf", "eps": eps / 255} for eps in (2, 8))
    runs = [wrote(tmp_path / "easy", clean=0.8, probe=near), wrote(tmp_path / "hard", probe=far)]
    table = runs_table(runs_of(runs))
    headings = [column.heading for column in table.columns]
    assert [name for name in headings if name.startswith("probe") and "last" not in name] == [
        "probe l∞ 2/255",
        "probe l∞ 8/255",
    ]
    easy, hard = (dict(zip(headings, row.cells, strict=True)) for row in table.rows)
    assert (easy["probe l∞ 2/255"].value, easy["probe l∞ 8/255"].text) == (0.4, "–")
    assert (hard["probe l∞ 8/255, last epoch"].value, hard["one step l∞ 2/255"].text) == (0.45, "–")
