"""A few images of an evaluation with their adversarial ones, to look at."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from gradreg.display.pictures import pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Segment:
    """The margin of probabilities on the way from each image of a gallery through its adversarial one and beyond."""

    at: tuple[float, ...]
    """How far along: 0 is the image, 1 the adversarial one; beyond it pixels are kept in the box."""
    margin: Tensor
    """Images by places; above 0 the model is wrong."""


@dataclass(frozen=True)
class Gallery:
    """A few images with the adversarial ones found for them; `rows` are their positions in the evaluation."""

    rows: tuple[int, ...]
    clean: Tensor
    adversarial: Tensor
    prediction: tuple[int, ...]
    """What the model takes the adversarial image for."""
    segment: Segment | None = None
    """None in files of before it was kept."""

    def plot(self) -> "Figure":
        """Each image, its adversarial one and the difference, magnified; with matplotlib."""
        titles = [f"image {row}" for row in self.rows]
        return pictures(self.clean, self.adversarial, titles, [f"taken for {each}" for each in self.prediction])
