"""What is drawn of results: the curve is the share of images beyond each distance, and pictures are the images."""

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from evaluation_toys import linear, part, quick
from gradreg import attack
from gradreg.display.curves import accuracy_chart, steps
from gradreg.errors import DataError, MissingPackageError
from gradreg.training import Fitted

EPOCHS = [{"epoch": n, "loss": 1 / n, "clean": 0.5 + 0.1 * n, "probe": 0.1 * n, "hours": 0.1} for n in (1, 2, 3)]


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    found = part(40, seed=5, wrong=4)
    return found.pixels / 255, found.labels


def curve_of(axes: Any) -> tuple[list[float], list[float]]:
    line = next(each for each in axes.lines if len(each.get_xdata()) > 2)
    return list(line.get_xdata()), list(line.get_ydata())


def test_the_curve_of_an_attack_is_its_robust_accuracy(batch: tuple[Tensor, Tensor]) -> None:
    result = attack(linear(), *batch, attacks="quick")
    figure = result.plot()
    x, y = curve_of(figure.axes[0])
    assert y[0] == result.robust_accuracy(0) == 0.9
    for eps in (0.03, 0.06, 0.1):
        assert [b for a, b in zip(x, y, strict=True) if a <= eps][-1] == pytest.approx(result.robust_accuracy(eps))
    assert figure.axes[0].get_xlabel() == "l2 distance"
    shown: Any = figure
    assert shown._repr_png_().startswith(b"\x89PNG")


def test_the_pictures_of_an_attack_are_the_images(batch: tuple[Tensor, Tensor]) -> None:
    x, y = batch[0][:6], batch[1][:6]  # four of them are misclassified
    result = attack(linear(), x, y, attacks="quick", threat="linf")
    panels = result.plot(x).axes
    first = int((result.distance > 0).nonzero()[0])
    assert len(panels) == 3 * 2
    shown = torch.as_tensor(panels[2].images[0].get_array()).permute(2, 0, 1)
    torch.testing.assert_close(shown, result.adversarial[first])
    assert panels[0].get_title() == f"image {first}"
    assert "/255" in panels[2].get_title()
    assert panels[4].get_title().startswith("difference ×")
    with pytest.raises(DataError, match="images that were attacked, 6"):
        result.plot(x[:3])
    with pytest.raises(DataError, match="no adversarial image to draw"):
        result.select(torch.arange(2)).plot(x[:2])


def test_an_evaluation_has_a_panel_for_each_threat_and_a_gallery() -> None:
    evaluation = quick(threat=("linf", "l2"))
    figure = evaluation.plot()
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["l∞", "l2"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "attacks",
        "ω-bound (heuristic)",
        "smoothed, σ = 0.25",
    ]
    gallery = evaluation.threats["l2"].gallery
    assert gallery is not None
    assert len(gallery.plot().axes) == 3 * min(8, len(gallery.rows))


def test_a_run_is_drawn_epoch_by_epoch() -> None:
    left, right = Fitted(EPOCHS, EPOCHS[-1], None).plot().axes
    assert curve_of(left) == ([1, 2, 3], [1, 1 / 2, 1 / 3])
    lines: Any = right.lines
    assert [list(line.get_ydata()) for line in lines] == [
        pytest.approx([0.6, 0.7, 0.8]),
        pytest.approx([0.1, 0.2, 0.3]),
    ]
    one = [{"epoch": 1, "loss": 0.5, "clean": 0.9}]
    assert len(Fitted(one, one[0], None).plot().axes[1].lines) == 1


def test_steps_end_where_nothing_is_known() -> None:
    values = torch.tensor([0.0, 1.0, 2.0, torch.inf])
    assert steps(values) == ((0.0, 1.0, 2.0), (0.75, 0.5, 0.25))
    assert steps(values, 1.5) == ((0.0, 1.0, 1.5), (0.75, 0.5, 0.5))


def test_no_curve_is_left_out_and_no_two_look_alike() -> None:
    distances = {f"kind {i}": (torch.tensor([0.1, 0.2 + i]), math.inf) for i in range(6)}
    chart = accuracy_chart("l2", "l2", distances, [(0.5, "0.5")])
    assert [each.name for each in chart.series] == list(distances)
    assert len({(each.model, each.look) for each in chart.series}) == 6
    assert len({(key.model, key.look) for key in chart.legend}) == 6


def test_a_legend_fits_into_its_figure() -> None:
    """Also in the letters that matplotlib has by itself, which are larger than those of our files."""
    drawn = quick(images=4, samples=50).plot()
    drawn.canvas.draw()
    (legend,) = drawn.legends
    box, whole = legend.get_window_extent(), drawn.bbox
    assert whole.x0 <= box.x0 < box.x1 <= whole.x1


def test_without_matplotlib_the_error_says_what_to_install(
    batch: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = attack(linear(), *batch, attacks="quick")
    draws: list[Callable[[], object]] = [result.plot, lambda: result.plot(batch[0])]
    for draw in (*draws, Fitted(EPOCHS, EPOCHS[0], None).plot):
        with pytest.raises(MissingPackageError, match=r"needs matplotlib.*gradreg\[plots\]"):
            draw()
