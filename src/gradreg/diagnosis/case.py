"""The model and the images that are diagnosed, and what tests ask of them."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradreg.attacks.run import Attack
from gradreg.classifier import Classifier
from gradreg.losses import margin, misclassified
from gradreg.norms import Threat, per_image
from gradreg.penalty.passes import Criterion
from gradreg.randomness import Streams

# The attacks' own draws are salted by their place in a plan, 0, 1, …: ours are elsewhere.
_SALT = 7919


@dataclass(frozen=True)
class Case:
    """Images, the logits of a model in eval mode for them, and the threat."""

    classifier: Classifier
    x: Tensor
    y: Tensor
    logits: Tensor
    threat: Threat
    eps: float
    topk: int
    seed: int
    batch_size: int
    in_train_mode: tuple[str, ...] = ()
    """Layers that were in train mode when the model was passed, by the name of their class."""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def correct(self) -> Tensor:
        """Correctly classified images: only these can be attacked."""
        return ~misclassified(self.logits, self.y, self.topk)

    def select(self, images: Tensor) -> "Case":
        """The same for some of the images."""
        return replace(self, x=self.x[images], y=self.y[images], logits=self.logits[images])

    def margin(self, logits: Tensor, y: Tensor, /) -> Tensor:
        """The margin on logits: positive where the model is wrong."""
        return margin(logits, y, self.topk)

    def margin_at(self, points: Tensor) -> Tensor:
        """The margin at one point per image."""
        parts = zip(points.split(self.batch_size), self.y.split(self.batch_size), strict=True)
        with torch.no_grad():
            return torch.cat([self.margin(self.classifier(part), y) for part, y in parts])

    def gradient(self, points: Tensor, loss: Criterion) -> Tensor:
        """The gradient of the loss at one point per image."""
        parts = zip(points.split(self.batch_size), self.y.split(self.batch_size), strict=True)
        return torch.cat([self.classifier.loss_and_gradient(part, y, loss)[1] for part, y in parts])

    def direction(self, draw: int) -> Tensor:
        """A random direction of norm 1 per image, from the image's own stream; a corner of the cube for l∞."""
        noise = Streams(self.seed, self.x, self.y).normal(self.x, draw, _SALT).to(self.x.dtype)
        along = self.threat.climb(noise)
        return (along / per_image(self.threat.norm(along), along)).to(along.dtype)

    def inside(self, points: Tensor, room: float = 0.0) -> Tensor:
        """The nearest points of the box that are at least `room` from its walls."""
        low, high = self.classifier.box
        return points.clamp(low + room, high - room)

    def broken_by(self, attack: Attack, eps: float | None = None, **options: Any) -> Tensor:
        """Which images the attack breaks within the radius."""
        found = attack(
            self.classifier,
            self.x,
            self.y,
            threat=self.threat,
            eps=self.eps if eps is None else eps,
            topk=self.topk,
            seed=self.seed,
            batch_size=self.batch_size,
            progress=False,
            **options,
        )
        return found.success
