"""Images drawn with matplotlib: as they are, and what was changed in them."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gradreg.display.plot import new_figure
from gradreg.errors import DataError
from gradreg.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches of a picture, and of the words above a column of them.
_SIDE, _WORDS = 1.1, 0.25
_MOST = 8


def pictures(clean: Tensor, adversarial: Tensor, titles: Sequence[str], said: Sequence[str]) -> "Figure":
    """A column for each of the first eight images: clean, adversarial, and the difference, magnified."""
    need("matplotlib", "A picture of images")
    if clean.ndim != 4 or clean.shape != adversarial.shape or len(clean) == 0:
        raise DataError(
            f"images to draw must be of shape (N, channels, height, width), N at least 1; got {tuple(clean.shape)}."
        )
    count = min(len(clean), _MOST)
    drawn = new_figure(_SIDE * count + 0.3, 3 * (_SIDE + _WORDS))
    panels = drawn.subplots(3, count, squeeze=False)
    for column in range(count):
        difference = (adversarial[column] - clean[column]).detach()
        factor = magnification(difference)
        show(panels[0][column], clean[column].detach())
        show(panels[1][column], adversarial[column].detach())
        show_difference(panels[2][column], factor * difference)
        words = (titles[column], said[column], f"difference ×{factor:g}")
        for row, text in enumerate(words):
            panels[row][column].set_title(text, fontsize=7, pad=2, parse_math=False)
    return drawn


def magnification(difference: Tensor) -> float:
    """The largest of 1, 2, 5, 10, … with which no pixel's change exceeds 1; less than 1 never."""
    largest = float(difference.abs().max())
    if largest == 0:
        return 1.0
    exponent = math.floor(math.log10(1 / largest))
    steps = [step * 10.0**exponent for step in (1, 2, 5)]
    return max(1.0, *(step for step in steps if step * largest <= 1 + 1e-6))


def show(axes: "Axes", image: Tensor) -> None:
    """An image in colour, or in grey if it has other than three channels."""
    pixels, options = _pixels(image.clamp(0, 1))
    axes.imshow(pixels, interpolation="nearest", **options)
    _bare(axes)


def show_difference(axes: "Axes", difference: Tensor) -> None:
    """Grey is no change; a single channel goes to blue where it was lowered and to red where it was raised."""
    if difference.shape[0] == 1:
        axes.imshow(difference[0].cpu().tolist(), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    else:
        axes.imshow(_pixels((0.5 + difference / 2).clamp(0, 1))[0], interpolation="nearest")
    _bare(axes)


def _pixels(image: Tensor) -> tuple[Any, dict[str, Any]]:
    if image.shape[0] == 3:
        return image.permute(1, 2, 0).to("cpu", torch.float32).numpy(), {}
    return image.mean(0).to("cpu", torch.float32).numpy(), {"cmap": "gray", "vmin": 0, "vmax": 1}


def _bare(axes: "Axes") -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
