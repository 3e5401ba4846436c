"""What changed between two evaluations: counts by hand, Holm's correction, settings; in every format and as a page."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from math import comb
from pathlib import Path

import pytest
import torch
from test_report_page import HOSTILE, Page, hostile

from commands import status
from gradreg.errors import ConfigError, DataError
from gradreg.evaluation.files import save
from gradreg.evaluation.record import Evaluation
from gradreg.report.page.difference import render
from gradreg.report.tables.changes import changes
from gradreg.report.tables.difference import Change, Difference, _corrected
from gradreg.report.writing import report
from handmade import INF, handmade, renamed


def many(lost: Sequence[int] = (), gained: Sequence[int] = (), n: int = 100) -> Evaluation:
    """Half of the images are broken at l2 0.4, the others at 0.6; those lost and gained change sides."""
    evaluation, rows = handmade(), torch.arange(n)
    distance = torch.where(rows < n // 2, 0.4, 0.6)
    distance[list(lost)] = 0.4
    distance[list(gained)] = 0.6
    record = evaluation.threats["l2"]
    attacked = replace(
        record.attacked, distance=distance, winner=("fmn",) * n, forwards=rows + 100, backwards=rows + 50
    )
    return replace(
        evaluation,
        index=rows,
        label=torch.zeros(n, dtype=torch.int64),
        prediction=torch.zeros(n, dtype=torch.int64),
        margin=torch.full((n,), -0.5),
        threats={"l2": replace(record, attacked=attacked, bounded=None, refusal="None.", gallery=None)},
        smoothing=(),
        clean=None,
    )


def at(difference: Difference, radius: float) -> Change:
    return next(change for change in difference.changes if change.radius == radius)


def test_lost_and_gained_images_are_counted() -> None:
    """Of 50 robust images at 0.5 ten are lost and one of the others is gained: p of 1 in 11 or worse, twice."""
    found = Difference.of([many(), many(lost=range(50, 60), gained=[3])])
    change = at(found, 0.5)
    assert (change.lost, change.gained, change.n) == (10, 1, 100)
    assert (change.before, change.after) == (0.5, 0.41)
    assert change.p == pytest.approx(2 * (comb(11, 0) + comb(11, 1)) / 2**11)
    assert change.corrected == pytest.approx(4 * change.p), "the smallest of four"
    assert change.beyond_chance
    assert [(each.where, each.lost, each.gained) for each in found.changes] == [
        ("clean", 0, 0),
        ("l2 0.25", 0, 0),
        ("l2 0.5", 10, 1),
        ("l2 1", 0, 0),
    ]
    assert found.moved("l2") == (10, 1)
    assert found.sentences()[0] == (
        "Robust accuracy at l2 0.5 fell from 50.0 % to 41.0 % on 100 images: 10 were lost and 1 gained, more than "
        f"chance (exact McNemar test, p = {change.corrected:.4f} corrected for 4 comparisons)."
    )


def test_what_chance_can_do_is_not_called_a_change() -> None:
    found = Difference.of([many(), many(lost=[50, 51, 52], gained=[3])])
    assert not at(found, 0.5).beyond_chance
    assert found.sentences()[0] == "No accuracy changed by more than chance on 100 images, clean and at 3 radii."
    same = Difference.of([many(), many()])
    assert same.sentences() == [
        "Nothing changed on 100 images, clean and at 3 radii.",
        "Both have the same settings.",
    ]
    assert [table.key for table in changes(same)] == ["changes", "changed-distances"]


def test_a_correction_by_holm() -> None:
    """0.01, 0.04, 0.03 of three: 3 · 0.01, then 2 · 0.03, then no less than that."""
    asked = [Change("l2", "l2", r, 0.5, 0.5, 0, 0, 9, p) for r, p in ((1.0, 0.01), (2.0, 0.04), (3.0, 0.03))]
    assert [change.corrected for change in _corrected(asked)] == pytest.approx([0.03, 0.06, 0.06])


def test_false_alarms_are_rare() -> None:
    """Images that change sides by chance alone: no more than 5 % of 300 comparisons find a change."""
    source, alarms = torch.Generator().manual_seed(0), 0
    for _ in range(300):
        sides = torch.rand(100, generator=source)
        lost = [i for i in range(50, 100) if sides[i] < 0.2]
        gained = [i for i in range(50) if sides[i] < 0.2]
        alarms += any(change.beyond_chance for change in Difference.of([many(), many(lost, gained)]).changes)
    assert alarms <= 15


def test_only_common_images_count_in_whatever_order() -> None:
    whole, part = many(), many(lost=range(50, 60))
    order = torch.arange(99, 39, -1)
    record = part.threats["l2"]
    attacked = replace(record.attacked, distance=record.attacked.distance[order])
    columns = {name: getattr(part, name)[order] for name in ("index", "label", "prediction", "margin")}
    part = replace(part, **columns, threats={"l2": replace(record, attacked=attacked)})
    change = at(Difference.of([whole, part]), 0.5)
    assert (change.n, change.lost, change.gained) == (60, 10, 0)


def test_images_that_changed_are_listed_the_largest_change_first() -> None:
    before, after = handmade(), handmade()
    distance = after.threats["l2"].attacked.distance.clone()
    distance[5], distance[6], distance[3] = 0.9, 0.45, INF
    l2 = after.threats["l2"]
    after = replace(
        after, threats={**after.threats, "l2": replace(l2, attacked=replace(l2.attacked, distance=distance))}
    )
    prediction = after.prediction.clone()
    prediction[0] = after.label[0]
    table = {each.key: each for each in changes(Difference.of([before, replace(after, prediction=prediction)]))}
    rows = {row.name: [cell.text for cell in row.cells] for row in table["changed-images"].rows}
    assert list(rows) == ["#21", "#0", "#35", "#42"]
    assert rows["#21"] == ["zero", "zero", "7.65/255 → 7.65/255", "0.300 → unbroken"]
    assert rows["#0"][:2] == ["zero", "two → zero"]
    few = next(each for each in changes(Difference.of([before, after]), most=1) if each.key == "changed-images")
    assert len(few.rows) == 1
    assert "2 more are in the CSV and JSON reports" in few.caption


def test_settings_that_differ_are_listed() -> None:
    one = handmade()
    two = replace(
        renamed(one, "other", recipe={"epochs": 3, "seed": 1}),
        settings=replace(one.settings, attacks="quick"),
        origin=replace(one.origin, commit="beef", created="2027-01-01T00:00:00+00:00"),
    )
    assert Difference.of([one, two]).settings() == [
        ("attacks", "standard", "quick"),
        ("commit", "0123abc", "beef"),
        ("training: seed", "0", "1"),
    ]
    assert Difference.of([one, two]).sentences()[-1] == "Settings that differ: attacks, commit and training: seed."


def test_two_evaluations_of_one_name_are_before_and_after() -> None:
    assert Difference.of([handmade(), handmade()]).comparison.names == ("by hand, before", "by hand, after")
    assert Difference.of([handmade("a"), handmade("b")]).comparison.names == ("a", "b")


def test_what_cannot_be_compared_is_refused() -> None:
    for count in (0, 1, 3):
        with pytest.raises(DataError, match=f"between two evaluations, before and after; got {count}"):
            Difference.of([handmade()] * count)
    with pytest.raises(DataError, match="must have images in common; got none"):
        Difference.of([handmade(), replace(handmade(), index=torch.arange(10) * 7 + 1)])
    with pytest.raises(DataError, match="so their accuracies cannot be compared"):
        Difference.of([handmade(), replace(handmade(), data=replace(handmade().data, name="cifar10"))])
    # Data from Python have no name of their own: other labels at the same positions show that they are others.
    with pytest.raises(DataError, match=r"must be of the same images; got \d+ of \d+ with other labels"):
        Difference.of([handmade(), replace(handmade(), label=handmade().label.roll(1))])


def test_the_page_and_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(many(), tmp_path / "a")
    save(many(lost=range(50, 60), gained=[3]), tmp_path / "b")
    pair = [tmp_path / "a", tmp_path / "b"]
    for ending in ("html", "md", "tex", "csv", "json"):
        text = report(pair, tmp_path / f"r.{ending}", diff=True).read_text(encoding="utf-8")
        assert "changed-images" in text or "Images that changed" in text
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert {row["row"] for row in rows if row["table"] == "changed-images"} == {f"#{i}" for i in (3, *range(50, 60))}
    assert json.loads((tmp_path / "r.json").read_text())["notes"][0].startswith("Robust accuracy at l2 0.5 fell")
    with pytest.raises(ConfigError, match="leave out paper and figures"):
        report(pair, tmp_path / "r.html", diff=True, paper=True)
    assert status(["report", *map(str, pair), "--diff", "-o", str(tmp_path / "c.html")]) == 0
    assert "10 were lost and 1 gained, more than chance" in capsys.readouterr().err
    assert status(["report", str(pair[0]), "--diff"]) == 2


def test_hostile_names_are_text_here_too() -> None:
    page = Page(render(Difference.of([hostile(), hostile()])))
    assert page.texts("h1") == [f"From “{HOSTILE}, before” to “{HOSTILE}, after”"]
    assert all("style" not in attributes for _, attributes in page.elements)
