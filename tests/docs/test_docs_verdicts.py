"""The page on robustness, from made-up records: what it says of goals, of trials, and of nothing at all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.arithmetic import step_forwards
from bench.recipe import step_settings
from docs.make import times, verdicts
from docs.make.dials import FIGURES as DIALS
from docs.make.dials import dials_table, panels
from docs.make.figures import FIGURES
from docs.make.fill import fill
from docs.make.goals import HELD, MISSED, NOT_YET, contests, goals_table
from docs.make.scatter import beside, draw_shootout, scatter
from docs.make.shootout import FIGURE, shootout_table
from docs.make.trials import trials_table
from docs.make.verdicts import Verdict, by_method, read_verdicts
from gradreg.config import tables
from gradreg.errors import DataError
from gradreg.report.tables.contrast import difference
from gradreg.report.tables.layout import Table
from gradreg.runs import recipes

N = 400
END = "<!-- gradreg: end -->"
Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _no_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting the arithmetic of a step takes a while, and has a test of its own."""
    costs = {"adversarial": 17.0, "gradient": 5.0, "undefended": 3.0}
    monkeypatch.setattr(verdicts, "step_forwards", lambda recipe: costs[recipe["objective"]["name"]])


@pytest.fixture
def write(tmp_path: Path) -> Write:
    (tmp_path / "pyproject.toml").touch()

    def written(
        name: str,
        recipe: str,
        *changes: str,
        clean: int,
        robust: int,
        hours: float = 1.0,
        eps: str = "8/255",
        split: str = "test",
        folder: str | None = None,
        **others: Any,
    ) -> Path:
        """A record of a network that is right on the first `clean` images, and robust on the first `robust`."""
        plain = tables.plain(recipes.config(recipe, changes))
        letters = robust * "r" + (clean - robust) * "b" + (N - clean) * "w"
        record = {
            "model": name,
            "recipe": plain,
            "epochs": plain["epochs"],
            "hours": hours,
            "trained on": "A, 2 cores",
            "options": {"threat": "l2" if recipe.endswith("l2") else "linf", "eps": eps, "split": split},
            "n": N,
            "images": "the first of the test set" if split == "test" else f"held out of training: {plain['held_out']}",
            "clean": clean / N,
            "robust": robust / N,
            "machine": {"commit": "abc"},
            "verdicts": letters,
        }
        usual = "trials" if split == "held-out" else "goals" if "near" in name or "far" in name else "shootout"
        path = tmp_path / "results" / (folder or usual) / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record | others))
        return path

    return written


def timed(root: Path, seconds: dict[tuple[str, ...], Any]) -> Path:
    """A file of `bench steps` with recipes, changes included, and their seconds."""
    path = root / times.FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    steps = [
        {"settings": step_settings(tables.plain(recipes.config(name, changes))), "networks": [name], "seconds": found}
        for (name, *changes), found in seconds.items()
    ]
    where = {"processor": "A, 2 cores", "commit": "def"}
    path.write_text(json.dumps({"options": {"rounds": 12, "threads": 1}, "machine": where, "steps": steps}))
    return path


@pytest.fixture(autouse=True)
def _times(tmp_path: Path) -> None:
    timed(
        tmp_path,
        {
            ("cifar10-compact-at",): 1.0,
            ("cifar10-compact-noisy-linf",): 0.4,
            ("cifar10-compact-noisy-linf", "objective.lazy=4"): 0.2,
            ("fashion-mnist-at",): 0.1,
            ("fashion-mnist-noisy-linf",): 0.04,
        },
    )


def near(write: Write, *, clean: int = 280, robust: int = 180, epochs: int = 6, seeds: int = 3) -> None:
    """Adversarial training with 240 and 150 of the images, and ours; its hours are of a busy machine."""
    for seed in range(seeds):
        at = {"clean": 240 + seed, "robust": 150 - seed}
        write(f"near-linf-at-seed{seed}", "cifar10-compact-at", f"seed={seed}", **at)
        ours = {"clean": clean + seed, "robust": robust - seed, "hours": 0.9}
        recipe = ("cifar10-compact-noisy-linf", f"seed={seed}", f"epochs={epochs}")
        write(f"near-linf-noisy-seed{seed}", *recipe, **ours)


def of_goals(root: Path) -> list[Verdict]:
    return read_verdicts(["results/goals/*.json"], root)


def texts(table: Table, row: str) -> list[str]:
    (found,) = [each for each in table.rows if each.name == row]
    return [cell.text for cell in found.cells]


@pytest.mark.parametrize(
    ("ours", "word", "shortfalls"),
    [
        ({}, HELD, []),
        ({"clean": 241}, MISSED, ["clean accuracy"]),
        ({"robust": 151}, MISSED, ["robust accuracy"]),
        ({"epochs": 7}, MISSED, ["time"]),
        ({"clean": 200, "robust": 100, "epochs": 9}, MISSED, ["clean accuracy", "robust accuracy", "time"]),
    ],
)
def test_ahead_beyond_chance(tmp_path: Path, write: Write, ours: Any, word: str, shortfalls: list[str]) -> None:
    """One image more of 400 is ahead, but not beyond chance."""
    near(write, **ours)
    found = contests(of_goals(tmp_path))[0]
    assert (found.goal.name, found.kind, found.verdict, found.shortfalls) == ("Near", "near-linf", word, shortfalls)


def test_two_seeds_show_nothing_yet(tmp_path: Path, write: Write) -> None:
    near(write, seeds=2)
    assert {each.verdict for each in contests(of_goals(tmp_path))} == {NOT_YET}
    (row, *_) = goals_table(of_goals(tmp_path)).rows
    assert (row.name, row.cells[0].text) == ("Near: CIFAR-10, l∞ 8/255", NOT_YET)
    assert row.cells[0].note == "near-linf-noisy: seeds 0, 1; near-linf-at: seeds 0, 1"


def test_time_is_that_of_the_steps_whatever_hours_a_machine_took(tmp_path: Path, write: Write) -> None:
    near(write, epochs=3)
    assert contests(of_goals(tmp_path))[0].time == pytest.approx(0.4 * 3 / 6)
    # Batches of 64 are another recipe: the time of others is not taken for theirs.
    for seed in range(3):
        half = ("cifar10-compact-noisy-linf", f"seed={seed}", "batch_size=64", "held_out=2000")
        write(f"near-linf-noisy-seed{seed}", *half, clean=280, robust=180)
    assert contests(of_goals(tmp_path))[0].time is None
    timed(tmp_path, {("cifar10-compact-at",): 1.0, ("cifar10-compact-noisy-linf", "batch_size=64"): 0.2})
    assert contests(of_goals(tmp_path))[0].time == pytest.approx(0.2 * (48_000 // 64) / (49_000 // 128))


def test_a_row_without_a_measured_step_shows_nothing_yet(tmp_path: Path, write: Write) -> None:
    near(write)
    timed(tmp_path, {("cifar10-compact-at",): 1.0})
    found = contests(of_goals(tmp_path))[0]
    assert (found.time, found.verdict, found.lacking) == (None, NOT_YET, "no time of its steps")
    time = goals_table(of_goals(tmp_path)).rows[0].cells[7]
    assert (time.text, time.note) == ("–", "0.90 h against 1.00 h"), "hours are there to be read, and not compared"
    (tmp_path / times.FILE).unlink()
    assert "No time of a step has been measured yet." in goals_table(of_goals(tmp_path)).caption


def test_a_damaged_file_of_times_is_refused(tmp_path: Path, write: Write) -> None:
    near(write)
    for seconds in (0.0, "slow", None):
        timed(tmp_path, {("cifar10-compact-at",): seconds})
        with pytest.raises(DataError, match="must be a file that `python -m bench steps --json` wrote"):
            of_goals(tmp_path)


def test_far_and_cheap_are_about_means(tmp_path: Path, write: Write) -> None:
    for seed in range(3):
        at = {"clean": 240, "robust": 150}
        write(f"near-linf-at-seed{seed}", "cifar10-compact-at", f"seed={seed}", **at)
        ours = ("cifar10-compact-noisy-linf", f"seed={seed}", "objective.lazy=4")
        write(f"near-linf-cheap-seed{seed}", *ours, clean=236, robust=146)
        for method, recipe in (("at", "fashion-mnist-at"), ("noisy", "fashion-mnist-noisy-linf")):
            write(f"far-linf-{method}-seed{seed}", recipe, f"seed={seed}", "epochs=6", **at, eps="0.1")
    found = {(each.goal.name, each.kind): each.verdict for each in contests(of_goals(tmp_path))}
    assert found["Far", "far-linf"] == HELD, "as good is enough"
    assert found["Cheap", "near-linf"] == HELD, "a point less is enough"
    write("near-linf-cheap-seed0", "cifar10-compact-noisy-linf", "objective.lazy=4", clean=236, robust=145)
    found = {(each.goal.name, each.kind): each.verdict for each in contests(of_goals(tmp_path))}
    assert found["Cheap", "near-linf"] == MISSED


def test_a_page_says_what_the_records_say(tmp_path: Path, write: Write) -> None:
    page = tmp_path / "page.md"
    kinds = {"answer": "goals", "goals": "goals", "shootout": "shootout", "figure": "shootout", "trials": "[gt]*"}
    marks = [f"<!-- gradreg: verdicts {kind} from results/{of}/*.json -->\n{END}\n" for kind, of in kinds.items()]
    page.write_text("\n".join(marks))
    assert fill(page)
    empty = page.read_text()
    assert "- **Near: not shown yet.** The goal: ahead of adversarial training" in empty
    assert "No row of results/goals.sh has been judged yet." in empty
    assert "No network of results/shootout.sh has been judged yet." in empty
    assert "No trial has been judged yet." in empty
    assert "| --- |" not in empty, "no table without rows"
    near(write)
    assert fill(page)
    assert "CIFAR-10, l∞ 8/255: held; CIFAR-10, l2 0.5: not shown yet." in page.read_text()
    assert "- **Near: not shown yet.**" in page.read_text(), "the goal has two places"
    assert "| Near: CIFAR-10, l∞ 8/255 | held | 70.2 % <sub>70.0–70.5</sub> |" in page.read_text()
    assert "Steps timed side by side, best of 12 rounds, on A, 2 cores, 1 thread(s), commit def." in page.read_text()
    assert (
        "| 0.40× <sub>0.90 h against 1.00 h</sub> | 0.29× <sub>6 epochs of 5.0F against 6 epochs of 17.0F</sub> |"
        in (page.read_text())
    )
    assert not fill(page)


def test_the_shootout_is_beside_adversarial_training(tmp_path: Path, write: Write) -> None:
    for seed in range(3):
        write(f"at-seed{seed}", "cifar10-compact-at", f"seed={seed}", clean=240, robust=150)
    write("noisy-seed1", "cifar10-compact-noisy-linf", "seed=1", clean=260, robust=170, hours=0.9)
    assert FIGURES[FIGURE](tmp_path) is not None
    found = read_verdicts(["results/shootout/*.json"], tmp_path)
    table = shootout_table(found)
    assert [row.name for row in table.rows] == ["noisy", "at"], "the most robust first"
    assert texts(table, "noisy") == ["65.0 %", "+5.0", "42.5 %", "+5.0", "0.40×", "5.0F", "1", "400"]
    assert texts(table, "at") == ["60.0 %", "–", "37.5 %", "–", "1.00×", "17.0F", "0, 1, 2", "400"]
    methods = by_method(found)
    interval = difference(methods["noisy"].robust, methods["at"].robust)
    note = table.rows[0].cells[3].note
    assert note == f"+{100 * interval.low:.1f} to +{100 * interval.high:.1f}, images alone", (
        "one seed says nothing more"
    )
    assert draw_shootout(found, tmp_path / "shootout.svg").read_text().startswith("<?xml")


def test_a_difference_within_chance_looks_small(tmp_path: Path, write: Write) -> None:
    write("at-seed0", "cifar10-compact-at", clean=240, robust=150)
    write("noisy-seed0", "cifar10-compact-noisy-linf", clean=241, robust=151)
    figure = scatter(read_verdicts(["results/shootout/*.json"], tmp_path))
    (axes,) = figure.axes
    for low, high in (axes.get_xlim(), axes.get_ylim()):
        assert high - low >= 6
    assert 60 < sum(axes.get_xlim()) / 2 < 60.25, "the networks are in the middle"


def test_trials_say_what_was_changed_and_what_was_taken(tmp_path: Path, write: Write) -> None:
    at = ("cifar10-compact-at", "held_out=2000")
    write("at-base", *at, clean=240, robust=150, split="held-out")
    write("at-ls", *at, "label_smoothing=0.1", clean=240, robust=154, split="held-out")
    write("at-eps9", *at, "objective.eps=9/255", clean=230, robust=152, split="held-out")
    ours = ("cifar10-compact-noisy-linf", "held_out=2000")
    write("n-noise4", *ours, "objective.noise=4/255", clean=250, robust=152, split="held-out")
    write("near-linf-at-seed1", *at, "label_smoothing=0.1", "seed=1", clean=239, robust=148)
    table = trials_table(read_verdicts(["results/trials/*.json", "results/goals/*.json"], tmp_path))
    assert [row.name for row in table.rows] == ["at-ls", "at-eps9", "at-base", "n-noise4"]
    where = "CIFAR-10, l∞ 8/255"
    ls = ["label_smoothing 0.1", "60.0 %", "38.5 %", "+1.0", "1.00", "400", "taken"]
    assert texts(table, "at-ls") == [f"adversarial training, {where}", *ls]
    assert table.rows[0].cells[4].note == "+0.0 to +2.0", "0.01 ± 1.966·√(0.01·0.99/399)"
    assert texts(table, "at-eps9")[1] == "eps 9/255"
    assert [texts(table, "at-base")[column] for column in (1, 4)] == ["–", "–"]
    assert [texts(table, row.name)[-1] for row in table.rows] == ["taken", "–", "–", "–"]
    assert f"{where}, adversarial training: 3; {where}, the penalty: 1" in table.caption


def test_dials_are_drawn_as_far_as_they_are_ahead_of_the_middle(tmp_path: Path, write: Write) -> None:
    ours: dict[str, Any] = {"folder": "dials", "split": "held-out"}
    write("near-middle", "cifar10-compact-noisy-linf", clean=240, robust=150, **ours)
    figures = [FIGURES[name] for name in DIALS]
    assert [draw(tmp_path) for draw in figures] == [None, None], "there is nothing to compare"
    write("near-noise-0", "cifar10-compact-noisy-linf", "objective.noise=0", clean=244, robust=140, **ours)
    write("near-noise-2", "cifar10-compact-noisy-linf", "objective.noise=16/255", clean=236, robust=152, **ours)
    write("near-relu", "cifar10-compact-noisy-linf", 'model.activation="relu"', clean=240, robust=146, **ours)
    near, far = (draw(tmp_path) for draw in figures)
    assert near is not None
    assert far is None
    found = read_verdicts(["results/dials/*.json"], tmp_path)
    drawn = {axes.get_title(): axes for axes in panels(found).axes if axes.get_title()}
    assert list(drawn) == ["noise", "model.activation"]
    bars: list[Any] = list(drawn["noise"].containers)
    clean, robust = (each.lines[0].get_ydata() for each in bars)
    assert list(clean) == pytest.approx([1.0, 0.0, -1.0])
    assert list(robust) == pytest.approx([-2.5, 0.0, 0.5])
    labels = [label.get_text() for label in drawn["noise"].get_xticklabels()]
    assert labels == ["0/255", "8/255", "16/255"]
    table = dials_table(found)
    assert table.caption.startswith("![How far each setting is ahead of the recipe")
    assert "(dials-near.svg)" in table.caption
    assert "far" not in table.caption.split("Accuracy on")[0].replace("How far", "")
    assert "taken" not in [column.heading for column in table.columns], "no row of the goals is chosen by dials"
    assert texts(table, "near-noise-0")[4] == "−2.5"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdicts": "x" * N}, "its radius or its verdicts cannot be read"),
        ({"n": N - 1}, "its radius or its verdicts cannot be read"),
        ({"robust": 0.9}, "its accuracies are not those of its verdicts"),
        ({"epochs": 2}, "it was judged after 2 of 6 epochs"),
        ({"options": {}}, "KeyError"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(
    tmp_path: Path, write: Write, change: dict[str, Any], message: str
) -> None:
    path = write("at-seed0", "cifar10-compact-at", clean=240, robust=150)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=rf"`python -m bench verdict --out` wrote; got .*{message}"):
        read_verdicts(["results/shootout/*.json"], tmp_path)


def test_rows_that_cannot_be_compared_are_refused(tmp_path: Path, write: Write) -> None:
    write("at-seed0", "cifar10-compact-at", clean=240, robust=150)
    write("at-seed1", "cifar10-compact-at", "seed=1", "ema=0.9", clean=240, robust=150)
    with pytest.raises(DataError, match="at-seed1 must differ from at-seed0 in the seed alone"):
        shootout_table(read_verdicts(["results/shootout/*.json"], tmp_path))
    write("near-l2-at-seed0", "cifar10-compact-at", clean=240, robust=150)
    with pytest.raises(DataError, match=r"near-l2-at must be judged on test images of CIFAR-10, l2 0\.5"):
        contests(of_goals(tmp_path))


def test_labels_avoid_what_is_drawn_already() -> None:
    right, left = (12.0, -4.0, 32.0, 4.0), (-32.0, -4.0, -12.0, 4.0)
    assert beside(0, 0, 12, 20, []) == right
    assert beside(0, 0, 12, 20, [right]) == left
    assert beside(0, 0, 12, 20, [right, left]) == (-10.0, 12.0, 10.0, 20.0)


@pytest.mark.parametrize(
    ("recipe", "change", "forwards"),
    [
        ("fashion-mnist-undefended", "seed=0", 3),
        ("fashion-mnist-at", "seed=0", 3 + 7 * 2),
        ("fashion-mnist-noisy-linf", "objective.omega=0", 5),
        (
            "fashion-mnist-noisy-linf",
            "objective={ name = 'gradient', eps = 0.1, h = 0.1, noise = 0.1, lazy = 4 }",
            15 / 4,
        ),
        ("fashion-mnist-noisy-linf", "objective={ name = 'gradient', eps = 0.1, h = 0.2 }", 6),
    ],
)
def test_arithmetic_of_a_step_in_forwards(recipe: str, change: str, forwards: float) -> None:
    """As the documents count it; the gradient at the images is the first layer's besides, which is small."""
    torch.set_num_threads(1)
    assert step_forwards(tables.plain(recipes.config(recipe, [change]))) == pytest.approx(forwards, rel=0.06)
