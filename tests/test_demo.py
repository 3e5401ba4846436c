"""The tour, cut short: it leaves runs, evaluations and a page whose figures are those of the evaluations."""

import json
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from commands import status
from gradreg import demo as module
from gradreg.demo import DemoError, DemoOptions, demo, moral
from gradreg.errors import ConfigError
from gradreg.evaluation.options import EvaluationOptions
from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison
from gradreg.report.writing import render
from handmade import handmade


def told(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.fixture
def console() -> Console:
    return Console(file=StringIO(), width=120)


@pytest.mark.slow
def test_the_tour_writes_a_complete_report_that_agrees_with_its_evaluations(tmp_path: Path, console: Console) -> None:
    options = DemoOptions(out=tmp_path, images=16, epochs=2)
    found = demo(options, console)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert set(found) == set(options.recipes)
    parts = [f"t-table-{number}" for number in range(1, 6)]
    for part in (*parts, "curves", "frontier", "images", "gaps", "diagnosis"):
        assert f'id="{part}"' in page
    tables = {
        table["key"]: table for table in json.loads(render(Comparison.of(list(found.values())), "json"))["tables"]
    }
    for recipe, evaluation in found.items():
        row = next(row for row in tables["robust-accuracy"]["rows"] if row["name"] == recipe)
        for cell, (threat, radius) in zip(
            row["cells"][1:], (("linf", 0.05), ("linf", 0.1), ("l2", 0.75), ("l2", 1.5)), strict=True
        ):
            assert cell["value"] == evaluation.threats[threat].robust_accuracy(radius).value
        assert f"{100 * evaluation.threats['linf'].robust_accuracy(0.1).value:.1f} %" in told(console)
        assert evaluation.subject.hours is not None
    assert moral(found) in told(console)
    assert (tmp_path / "report.html").resolve().as_uri() in told(console).replace("\n", "")

    again = demo(options, console)
    assert {name: one.subject.hours for name, one in again.items()} == {n: o.subject.hours for n, o in found.items()}


@pytest.mark.slow
def test_the_fast_tour_ends_with_intervals_that_do_not_overlap(tmp_path: Path, console: Console) -> None:
    found = demo(DemoOptions(out=tmp_path, fast=True), console)
    assert list(found) == ["mnist5k-undefended", "mnist5k-linf"]
    assert {len(one) for one in found.values()} == {500}
    assert moral(found).endswith("The 95 % intervals do not overlap.")


def evaluated(robust: int) -> Evaluation:
    """A hundred images, so many of which are robust at l∞ 8/255."""
    evaluation, n = handmade(hours=1.0), 100
    distance = torch.where(torch.arange(n) < robust, 1.0, 0.001)
    record = evaluation.threats["linf"]
    attacked = replace(record.attacked, distance=distance, winner=("fmn",) * n)
    return replace(evaluation, threats={"linf": replace(record, attacked=attacked, bounded=None)})


def test_the_last_sentence_says_what_was_measured() -> None:
    found = {"mnist5k-undefended": evaluated(20), "mnist5k-linf": evaluated(80)}
    assert moral(found) == (
        "Trained with the gradient penalty, 1.0 times as long as without, the network is right within l∞ 8/255 of "
        "80.0 % (70.8–87.3 %) of 100 test images; undefended, of 20.0 % (12.7–29.2 %). The 95 % intervals do not "
        "overlap."
    )
    found["mnist5k-linf"] = evaluated(24)
    assert moral(found).endswith("The 95 % intervals overlap, so it shows little.")


def test_the_table_fits_eighty_columns() -> None:
    found = {f"mnist5k-{name}": replace(handmade(hours=1.0), clean=None) for name in ("undefended", "l2", "linf", "at")}
    narrow = Console(file=StringIO(), width=80)
    narrow.print(module._table(found, seed=0, plain=False))
    lines = told(narrow).splitlines()
    rows = [line for line in lines if line.startswith("│")]
    assert len(rows) == 2 * 4, "an accuracy with its bar, and its interval"
    assert all(" 90.0 % ██████▎ " in row for row in rows[::2])
    assert all(" 55.5–99.7 % " in row for row in rows[1::2])
    assert max(map(len, lines)) <= 80


def test_numbers_are_checked_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("images", "epochs"):
        with pytest.raises(ConfigError, match=rf"^{name} must be at least 1; got 0\.$"):
            DemoOptions(**{name: 0})  # type: ignore[arg-type]
        assert status(["demo", "--out", str(tmp_path / "demo"), f"--{name}", "0"]) == 2
        assert f"{name} must be at least 1; got 0." in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("fast", [False, True])
def test_the_tour_looks_at_enough_images_at_radii_that_separate(fast: bool) -> None:
    options = DemoOptions(fast=fast)
    for recipe in options.recipes:
        train, evaluate = options.commands(recipe)
        given = dict(zip(evaluate[2::2], evaluate[3::2], strict=True))
        assert int(given["--images"]) >= 500
        asked = {name.removeprefix("--").replace("-", "_"): value for name, value in given.items()}
        numbers = {name: int(value) if value.isdigit() else value for name, value in asked.items()}
        assert "linf" in EvaluationOptions(**numbers).threats  # type: ignore[arg-type]
        assert train[:2] == ["train", recipe]
    assert module._DEFENDED in options.recipes
    assert module._UNDEFENDED in options.recipes


def test_a_step_that_fails_ends_the_tour_with_its_sentence(tmp_path: Path, console: Console) -> None:
    (tmp_path / "mnist5k-undefended").mkdir()
    (tmp_path / "mnist5k-undefended" / "config.toml").write_text("epochs = -1\n")
    (tmp_path / "mnist5k-linf").mkdir()
    (tmp_path / "mnist5k-linf" / "config.toml").write_text("epochs = -1\n")
    with pytest.raises(DemoError, match=r"gradreg train .* ended with status 2: "):
        demo(DemoOptions(out=tmp_path, fast=True), console)


def test_commands_end_with_a_tour_that_was_killed(tmp_path: Path) -> None:
    """Nobody holds the other end of their stdin then; otherwise they end by themselves."""

    def started(*arguments: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", module._CHILD, *arguments]
        return subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    with started("--version") as left_alone:
        assert left_alone.wait(60) == 0
    with started("train", "mnist5k-l2", "--run", "run", "--set", "epochs=1000") as orphan:
        assert orphan.stdin is not None
        orphan.stdin.close()
        assert orphan.wait(60) == 1
