"""When a search looks at its device: whenever it likes at the host, seldom at an accelerator."""

from dataclasses import dataclass

import torch
from torch import Tensor

# Evaluations of an accelerator per look.
_PER_LOOK = 8
# Looks at a batch that are not the search's: at images and clean logits, and the two around verification.
_OTHERS = 3


@dataclass
class Schedule:
    """Evaluations and looks of a batch so far: one look in eight evaluations, those around the search included."""

    free: bool
    evaluations: int = 0
    looks: int = 0

    @classmethod
    def of(cls, device: torch.device, evaluations: int) -> "Schedule":
        """For a device, after the evaluations that have checked the model."""
        return cls(device.type == "cpu", evaluations)

    @property
    def due(self) -> bool:
        """Whether the search may look before its next evaluation."""
        return self.free or self.evaluations >= _PER_LOOK * (self.looks + 1 + _OTHERS)


@dataclass(frozen=True)
class Seen:
    """What a look at a search tells: how many images are searched, searched after this part, and so on."""

    live: int
    kept: int
    """How many images stay in the batch."""
    after_this_part: int
    after_this_attack: int
    broken: int
    """Not 0: some logits were not finite."""
    found: int
    """How many images have an adversarial image that is not the image itself."""

    @classmethod
    def by_one_look(cls, *masks: Tensor) -> "Seen":
        """From the masks of these images, in this order."""
        return cls(*torch.stack([mask.sum() for mask in masks]).tolist())
