"""What a randomised model answers under fresh draws, which the attacks on its fixed draws never saw."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class FreshDraws:
    """The answers to each image, or to the nearest adversarial image of each, under fresh draws of their own."""

    draws: int
    """As many as the model averages."""
    wrong: Tensor
    """Misclassified by the average of the fresh draws."""
    share: Tensor
    """Share of the fresh draws that misclassify it, each by itself."""
