"""Accuracy of a randomised model under fresh draws, which the attacks on its fixed draws never saw."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.evaluation.fresh import FreshDraws
from gradreg.evaluation.record import ThreatRecord
from gradreg.norms import robust_at


@dataclass(frozen=True)
class Redrawn:
    """An evaluation in one threat under fresh draws.

    An image is right within a radius if neither it nor the nearest adversarial image found for it, where that lies
    within the radius, is misclassified. That image lies just beyond the boundary of the average that was attacked, so
    other draws, however many, put about half of them back: this is no robustness.
    """

    distance: Tensor
    """Of the nearest adversarial images that the attacks found against the fixed draws."""
    clean: FreshDraws
    adversarial: FreshDraws

    @classmethod
    def of(cls, clean: FreshDraws | None, record: ThreatRecord) -> "Redrawn | None":
        """What was found in a threat; None for a model that draws nothing, and in files of before it was kept."""
        if clean is None or record.fresh is None:
            return None
        return cls(record.attacked.distance, clean, record.fresh)

    @property
    def found(self) -> Tensor:
        """Images that are right under the fixed draws and for which the attacks found an adversarial image."""
        return self.distance.isfinite() & (self.distance > 0)

    @property
    def fooled(self) -> Tensor:
        """Of these, whether the adversarial image is misclassified by the average of fresh draws, too."""
        return self.adversarial.wrong[self.found]

    @property
    def fresh_distance(self) -> Tensor:
        """The distance where it counts under fresh draws: 0 where the image is misclassified by itself, else inf."""
        kept = self.distance.where(self.adversarial.wrong, torch.inf)
        return kept.where(~self.clean.wrong, 0.0)

    def robust(self, eps: float) -> Tensor:
        """Images that are right within ε by the average of fresh draws."""
        return robust_at(self.fresh_distance, eps)

    def single(self, eps: float) -> float:
        """The accuracy within ε of one draw, on average: each image by the worse of the two where there are two."""
        worse = self.clean.share.maximum(self.adversarial.share)
        wrong = self.clean.share.where(robust_at(self.distance, eps), worse)
        return 1 - float(wrong.double().mean())
