"""A search in low precision: what looks adversarial there is a claim, until the model has computed it as it does.

Claims are recorded at once, and asked about together some evaluations later, the nearest of each image. One that does
not hold is taken back, and the error of its margin is what later claims about that image must exceed. When to ask
depends on the number of evaluations only: neither on the device nor on what was found.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.norms import per_image

# Claims are asked about after 1, 3, 7, 15, 23, … evaluations: most images fall to the first steps of an attack.
_APART = 8


@dataclass(frozen=True)
class Record:
    """The nearest adversarial image known of each image, how far it is, and the attack that found it."""

    distance: Tensor
    adversarial: Tensor
    winner: Tensor

    def where(self, holds: Tensor, other: "Record") -> "Record":
        """This where it holds, and the other record elsewhere."""
        pixels = per_image(holds, self.adversarial).bool()
        return Record(
            self.distance.where(holds, other.distance),
            torch.where(pixels, self.adversarial, other.adversarial),
            self.winner.where(holds, other.winner),
        )


class Claims:
    """What an attack claims in low precision: `sure` is the record without it."""

    def __init__(self, low: torch.dtype, sure: Record) -> None:
        self.low, self.sure = low, sure
        self.open = torch.zeros_like(sure.winner, dtype=torch.bool)
        """Images with a claim that was not asked about yet."""
        self.failed = torch.zeros_like(self.open)
        """Images of which a claim did not hold."""
        self.doubt = torch.zeros_like(sure.distance)
        """What the margin in low precision must exceed, per image."""
        self._margin = self.doubt
        self.restart()

    def restart(self) -> None:
        """Ask soon again, since another part of the attack begins."""
        self._apart = self._left = 1

    @property
    def due(self) -> bool:
        """Whether to ask about the claims before the next evaluation."""
        return self._left <= 0

    @property
    def asked(self) -> bool:
        """Whether there was an evaluation since claims were asked about."""
        return self._left < self._apart

    def note(self, claimed: Tensor, margin: Tensor) -> None:
        """Take in the claims of an evaluation and their margins in low precision, rows of all images."""
        self.open, self._margin = self.open | claimed, margin.where(claimed, self._margin)
        self._left -= 1

    def settle(self, record: Record, margin: Tensor) -> Record:
        """The record of what holds: `margin` is that of its images as the model computes, rows of all images."""
        holds = ~self.open | (margin > 0)
        error = (self._margin - margin).nan_to_num(0.0)
        self.doubt = torch.maximum(self.doubt, error.masked_fill(holds, 0))
        self.failed = self.failed | ~holds
        self.sure, self.open = record.where(holds, self.sure), torch.zeros_like(self.open)
        self._apart = self._left = min(2 * self._apart, _APART)
        return self.sure
