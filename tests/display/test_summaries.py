"""Every result prints in at most ten lines, with its figures and without its tensors, in a notebook as a table."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from evaluation_toys import linear, part, quick
from gradreg import attack, bounds, certify, clever, estimate_regularity, inspect_image, regularized_loss, verdict
from gradreg.attacks import AttackResult, Pool
from gradreg.diagnosis.flags import make
from gradreg.display.summary import Shown, Summary, counted, images, spread
from gradreg.evaluation import Evaluation
from gradreg.norms import Weighted
from gradreg.training import Fitted


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    found = part(200, seed=5, wrong=2)
    return found.pixels / 255, found.labels


@pytest.fixture(scope="module")
def result(batch: tuple[Tensor, Tensor]) -> AttackResult:
    return attack(linear(), *batch, attacks="quick")


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return quick(threat=("linf", "l2", "l1"), smoothing=(0.25, 0.5, 1.0))


def made(kind: str, x: Tensor, y: Tensor) -> Shown:
    model = linear()
    epoch = {"epoch": 1, "loss": 0.5, "clean": 0.9}
    regularity = estimate_regularity(model, (x, y), limit=160, block_size=8, steps=2)
    made: dict[str, Callable[[], Shown]] = {
        "loss": lambda: regularized_loss(model.train(), x, y, eps=0.1),
        "regularity": lambda: regularity,
        "bounds": lambda: bounds(model, x + 1e-3, y, regularity),
        "clever": lambda: clever(model, x, y, blocks=5, samples=5),
        "certificates": lambda: certify(model, x, sigma=0.25, n=200, radii=[0.1, 0.25]),
        "inspection": lambda: inspect_image(model, x[3], samples=200, attacks=["fmn"]),
        "verdict": lambda: verdict([make("zero-gradient-margin", "warning", "3 gradients are zero.")]),
        "fitted": lambda: Fitted([epoch], epoch, None),
    }
    return made[kind]()


KINDS = ("loss", "regularity", "bounds", "clever", "certificates", "inspection", "verdict", "fitted")


def check_short(shown: Shown) -> str:
    text = str(shown)
    assert text == repr(shown)
    assert 1 < len(text.splitlines()) <= 10
    assert max(map(len, text.splitlines())) <= 200
    assert "tensor(" not in text
    html = shown._repr_html_()
    assert html.startswith("<table>")
    assert html.endswith("</table>")
    assert html.count("<tr>") == len(text.splitlines()) - 1
    return text


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_prints_in_ten_lines(kind: str, batch: tuple[Tensor, Tensor]) -> None:
    check_short(made(kind, *batch))


def test_an_attack_says_what_it_found(result: AttackResult) -> None:
    text = check_short(result)
    assert "200 images, l2" in text
    assert "99.0 %" in text
    assert all(f"{name} {count}" in text for name, count in result.wins.items())
    assert f"{100 * result.robust_accuracy(0.5):.1f} % at 0.5" in text
    assert result.wins.total() == int(((result.distance > 0) & result.success).sum())


def test_nothing_found_is_said_and_not_averaged(result: AttackResult) -> None:
    text = check_short(replace(result, distance=result.distance.masked_fill(result.distance > 0, torch.inf)))
    assert "none found" in text
    assert "198 of 200 (99.0 %)" in text
    assert "inf" not in text.split("\n", 1)[1]


def test_a_norm_without_a_name_prints_too(batch: tuple[Tensor, Tensor]) -> None:
    assert "robust" not in check_short(
        attack(linear(), *batch, attacks="quick", threat=Weighted("l2", torch.full((3, 4, 4), 2.0)))
    )


def test_a_pool_says_how_far_it_is(result: AttackResult) -> None:
    pool = Pool(300)
    assert repr(pool) == "Pool: 0 of 300 images attacked"
    pool.update(result, torch.arange(200))
    assert repr(pool) == "Pool: 200 of 300 images attacked, l2"


def test_an_evaluation_of_many_threats_counts_what_it_leaves_out(evaluation: Evaluation) -> None:
    text = check_short(evaluation)
    assert "Sequential on 12 images of toy" in text
    assert "l∞ robust" in text
    for record in evaluation.threats.values():
        radius = evaluation.data.usual_radius(record.threat)
        assert f"{100 * record.robust_accuracy(radius).value:.1f} %" in text
    assert "smoothed, σ = 0.25" in check_short(quick())


def test_what_does_not_fit_is_counted() -> None:
    lines = str(Summary("title", [(f"fact {i}", "x") for i in range(20)])).splitlines()
    assert len(lines) == 10
    assert lines[-1].split() == ["…", "and", "12", "more"]
    assert str(Summary("title", [("known", "1"), ("unknown", "")])) == "title\n  known  1"


def test_markup_in_a_name_is_text_in_a_notebook() -> None:
    html = Summary("<b>a & b", [("<script>", "x<y")]).html()
    assert "<script>" not in html
    assert "&lt;b&gt;a &amp; b" in html


def test_numbers_in_words() -> None:
    assert spread(torch.tensor([1.0, 2.0, 6.0])) == "median 2.00, mean 3.00, 1.00 to 6.00"
    assert spread(torch.tensor([1.0, torch.inf, torch.nan])) == "median 1.00, mean 1.00, 1.00 to 1.00; not known for 2"
    assert spread(torch.tensor([1, 2, 1200])) == "median 2, mean 401, 1 to 1,200"
    assert spread(torch.tensor([torch.nan])) == "not known"
    assert spread(torch.tensor(2.5)) == "2.50"
    assert (images(1), images(1200)) == ("1 image", "1,200 images")
    assert (counted(0, 5), counted(1, 4)) == ("", "1 of 4 (25.0 %)")
