"""The result of an attack: a verified adversarial image and its distance per image, with the cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradreg.checks.tensors import check_positions
from gradreg.norms import robust_at


@dataclass(frozen=True)
class AttackResult:
    """The nearest adversarial image found for each image.

    `distance` is 0 for an image that is misclassified as it is and inf where nothing was found; in both cases
    `adversarial` is the clean image. Otherwise it lies in the box at exactly that distance and a fresh forward of it
    alone has misclassified it. `winner` names the attack that found it ("clean": none was needed, "": none succeeded).
    `eps` are the radii of a fixed-radius search: it stopped below each of them, so distances are not minimal then.
    """

    distance: Tensor
    adversarial: Tensor
    winner: tuple[str, ...]
    forwards: Tensor
    backwards: Tensor
    threat: str
    topk: int = 1
    eps: tuple[float, ...] | None = None
    quantize: int | None = None
    left_out: tuple[str, ...] = ()
    """Attacks of the suite that were not run, since they do not support the norm."""

    def __len__(self) -> int:
        return len(self.distance)

    @property
    def success(self) -> Tensor:
        """Images with an adversarial image, the misclassified ones included."""
        return self.distance.isfinite()

    @property
    def propagations(self) -> Tensor:
        """Forwards and backwards per image."""
        return self.forwards + self.backwards

    def robust(self, eps: float) -> Tensor:
        """Images for which no adversarial image was found within `eps`; this proves nothing."""
        return robust_at(self.distance, eps)

    def robust_accuracy(self, eps: float) -> float:
        """The fraction of images that remain robust within `eps`; at 0 it is the clean accuracy."""
        return int(self.robust(eps).sum()) / len(self)

    def to(self, device: torch.device | str) -> "AttackResult":
        """The same result on another device."""
        return self._with(lambda tensor: tensor.to(device))

    def select(self, images: Tensor) -> "AttackResult":
        """The result for some of the images, in that order."""
        images = check_positions("images", images, len(self))
        rows = self._with(lambda tensor: tensor[images.to(tensor.device)])
        return replace(rows, winner=tuple(self.winner[i] for i in images.tolist()))

    def _with(self, change: Callable[[Tensor], Tensor]) -> "AttackResult":
        return replace(
            self,
            distance=change(self.distance),
            adversarial=change(self.adversarial),
            forwards=change(self.forwards),
            backwards=change(self.backwards),
        )


def concatenate(results: Sequence[AttackResult]) -> AttackResult:
    """The results of consecutive batches as one."""
    return replace(
        results[0],
        distance=torch.cat([result.distance for result in results]),
        adversarial=torch.cat([result.adversarial for result in results]),
        forwards=torch.cat([result.forwards for result in results]),
        backwards=torch.cat([result.backwards for result in results]),
        winner=tuple(name for result in results for name in result.winner),
    )
