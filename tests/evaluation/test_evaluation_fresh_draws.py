"""Fresh draws of a randomised model in an evaluation: accuracies by hand, files, records, and none for other models."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from gradreg import GradregError
from gradreg.evaluation import Evaluation, load, save
from gradreg.evaluation.fresh import FreshDraws
from gradreg.evaluation.redrawn import Redrawn
from gradreg.evaluation.reporting import ConsoleReporter
from handmade import handmade


def randomised() -> Evaluation:
    """Ten images at l2 distances 0, 0.1 … 0.9, the first misclassified.

    Fresh draws get the first right and the second wrong, and are fooled by the adversarial images of the even ones.
    """
    evaluation = handmade()
    n = len(evaluation)
    clean = torch.zeros(n, dtype=torch.bool)
    clean[1] = True
    wrong = torch.arange(n) % 2 == 0
    wrong[0] = False
    of_clean = FreshDraws(4, clean, torch.where(clean, 0.75, 0.25))
    of_adversarial = FreshDraws(4, wrong, torch.where(wrong, 1.0, 0.0))
    threats = {name: replace(record, fresh=of_adversarial) for name, record in evaluation.threats.items()}
    return replace(evaluation, threats=threats, fresh=of_clean)


def test_accuracies_by_hand() -> None:
    evaluation = randomised()
    found = Redrawn.of(evaluation.fresh, evaluation.threats["l2"])
    assert found is not None
    distance = evaluation.threats["l2"].attacked.distance
    assert distance.tolist() == pytest.approx([i / 10 for i in range(10)])
    # Only the second image fails by itself; within 0.5 the adversarial images of the third and the fifth do too.
    assert found.robust(0.0).tolist() == [i != 1 for i in range(10)]
    assert found.robust(0.5).tolist() == [i not in (1, 2, 4) for i in range(10)]
    assert (int(found.fooled.sum()), len(found.fooled)) == (4, 9)
    # One draw gets 9 images right with 3/4 and one with 1/4; within 0.5 two of the former always fail.
    assert found.single(0.0) == pytest.approx((9 * 0.75 + 0.25) / 10)
    assert found.single(0.5) == pytest.approx((7 * 0.75 + 0.25) / 10)


def test_files_and_records_hold_them(tmp_path: Path) -> None:
    evaluation = randomised()
    save(evaluation, tmp_path)
    header = (tmp_path / "images.csv").read_text().splitlines()[0].split(",")
    assert header[4:6] == ["fresh", "fresh_share"]
    assert {"l2.fresh", "l2.fresh_share"} <= set(header)
    summary = json.loads((tmp_path / "evaluation.json").read_text())["summary"]["threats"]["l2"]["fresh_draws"]
    assert (summary["draws"], summary["adversarial"], summary["misclassified"]) == (4, 9, 4)
    assert summary["error"]["0.5"]["value"] == pytest.approx(0.3)
    assert summary["error_of_one_draw"]["0.5"] == pytest.approx(0.45)
    found = load(tmp_path)
    assert found.fresh is not None
    assert torch.equal(found.fresh.share, evaluation.fresh.share)  # type: ignore[union-attr]
    assert found.threats["l2"].fresh is not None
    record = found.to_dict()
    assert record["columns"]["l2.fresh_share"]["unit"] == "fraction"
    assert record["images"][2]["l2.fresh"] is True
    # 7 of ten images are robust within 0.25 under the fixed draws and 8 within it under fresh ones.
    assert "70.0 % at 0.25, 40.0 % at 0.5, 0.0 % at 1; fresh draws: 80.0 %, 70.0 %, 50.0 %" in str(found)


def test_other_models_have_none(tmp_path: Path) -> None:
    save(handmade(), tmp_path)
    content = json.loads((tmp_path / "evaluation.json").read_text())
    assert "fresh" not in content
    assert "fresh" not in content["threats"]["l2"]
    assert "fresh" not in (tmp_path / "images.csv").read_text()
    assert "fresh" not in str(load(tmp_path))


def test_a_share_must_be_one(tmp_path: Path) -> None:
    evaluation = randomised()
    assert evaluation.fresh is not None
    wrong = replace(evaluation, fresh=replace(evaluation.fresh, share=evaluation.fresh.share + 1))
    with pytest.raises(GradregError, match=r"fresh\.share"):
        save(wrong, tmp_path)


def test_the_console_says_both() -> None:
    evaluation, console = randomised(), Console(record=True, width=200)
    found = Redrawn.of(evaluation.fresh, evaluation.threats["l2"])
    assert found is not None
    ConsoleReporter(console).redrawn(found, 0.5)
    said = "under 4 fresh draws: 70.0 %, under one: 55.0 %; 4 of 9 adversarial images are misclassified"
    assert said in console.export_text()
