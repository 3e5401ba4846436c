"""The search for the worst first-order error, and for the steepest gradient, around images.

Directions drawn at random hardly see the worst: in 3,072 dimensions almost all of them are orthogonal to it. So the
error is climbed, on a trajectory that grows through all radii at once and shrinks back again.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.bounds.loss import Loss
from gradreg.classifier import Classifier
from gradreg.norms import Radius, Threat, per_image
from gradreg.penalty.passes import Criterion
from gradreg.randomness import generator


@dataclass(frozen=True)
class Surroundings:
    """Images with their losses and gradients, and the first-order error around them, eq. (mod) of §2.2."""

    classifier: Classifier
    loss: Loss
    threat: Threat
    x: Tensor
    y: Tensor
    value: Tensor
    gradient: Tensor
    clip: bool

    @classmethod
    def of(cls, classifier: Classifier, loss: Loss, threat: Threat, x: Tensor, y: Tensor, clip: bool) -> "Surroundings":
        """One forward and one backward."""
        value, gradient = classifier.loss_and_gradient(x, y, loss)
        return cls(classifier, loss, threat, x, y, value, gradient, clip)

    @property
    def gap(self) -> Tensor:
        """max{ℓ₀ − ℓ(x), 0}."""
        return self.loss.gap(self.value)

    def fill(self, v: Tensor, radius: Radius) -> Tensor:
        """`v` in the ball and the box, scaled up to the radius: other pixels make up for what the box cuts off."""
        v = self.inside(self.threat.retract(v, radius))
        for _ in range(3 if self.clip else 0):
            length = self.threat.norm(v)
            v = self.inside(v * per_image((radius / length).where(length > 0, 1), v).to(v.dtype))
        return v

    def inside(self, v: Tensor) -> Tensor:
        """`v` clipped so that the images stay in the pixel box, as in attacks; its norm does not grow."""
        return (self.x + v).clamp(*self.classifier.box) - self.x if self.clip else v

    def error(self, v: Tensor) -> Tensor:
        """ℓ(x + v) − ℓ(x) − ⟨v, ∇ℓ(x)⟩, by a forward."""
        with torch.no_grad():
            ahead = self.loss(self.classifier(self.x + v), self.y)
        return self._less_first_order(ahead, v)

    def error_and_gradient(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """The error, and ∇ℓ(x + v)."""
        ahead, gradient = self.classifier.loss_and_gradient(self.x + v, self.y, self.loss)
        return self._less_first_order(ahead, v), gradient

    def error_and_climb(self, v: Tensor, climbed: Criterion) -> tuple[Tensor, Tensor, Tensor]:
        """The error, and another loss with its gradient at x + v, by the same forward."""
        seen: list[Tensor] = []

        def both(logits: Tensor, y: Tensor) -> Tensor:
            seen.append(self.loss(logits, y).detach())
            return climbed(logits, y)

        height, gradient = self.classifier.loss_and_gradient(self.x + v, self.y, both)
        return self._less_first_order(seen[0], v), height, gradient

    def _less_first_order(self, ahead: Tensor, v: Tensor) -> Tensor:
        return ahead - self.value - (v * self.gradient).flatten(1).sum(1)


def random_directions(around: Surroundings, keys: list[int], seed: int, purpose: str) -> Tensor:
    """A point of the unit ball per image, from the image's own stream."""
    x, threat = around.x, around.threat
    # Drawn on the host, so that they are the same numbers on every device.
    blank = torch.empty_like(x[:1], device="cpu")
    draws = [threat.sample(blank, 1.0, generator(purpose, seed, key)) for key in keys]
    return torch.cat(draws).to(x.device)


def climb_error(
    around: Surroundings, eps: Tensor, steps: int, restarts: int, keys: list[int], seed: int
) -> tuple[Tensor, Tensor]:
    """The largest first-order error found within each radius, (images, radii), and the steepest gradient passed.

    A trajectory starts along the steepest ascent of the loss, where attacks go, or at random; at each radius it makes
    `steps` steps of projected ascent, then carries on to the next radius: up the grid and down again.
    """
    threat = around.threat
    errors = torch.zeros(len(around.x), len(eps), dtype=around.value.dtype, device=around.x.device)
    steepest = threat.dual_norm(around.gradient)
    radii: list[float] = eps.tolist()
    order = [*range(len(radii)), *reversed(range(len(radii) - 1))]
    for restart in range(restarts):
        direction = (
            threat.ascent(around.gradient)
            if restart == 0
            else random_directions(around, keys, seed, f"ascent/{restart}")
        )
        v, before = direction * radii[0], radii[0]
        for index in order:
            radius = radii[index]
            v = around.inside(threat.retract(v * (radius / before), radius))
            for step in range(steps):
                error, gradient = around.error_and_gradient(v)
                errors[:, index] = errors[:, index].maximum(error)
                steepest = steepest.maximum(threat.dual_norm(gradient))
                if step < steps - 1 or steps == 1:
                    move = threat.climb(gradient - around.gradient) * (radius / (1 + step))
                    v = around.inside(threat.retract(v + move, radius))
            before = radius
    # What was found within a radius lies within every larger one.
    return errors.cummax(1).values, steepest


def climb_gradient(around: Surroundings, radius: float, steps: int, keys: list[int], seed: int) -> Tensor:
    """The largest ‖∇ℓ(x + v)‖_* found for ‖v‖ ≤ radius by projected ascent.

    The norm's own gradient is Hd, with d the steepest ascent of ℓ; it is taken as a difference of gradients over a
    hundredth of the radius, which sees the kinks of a ReLU network and needs no double backward.
    """
    threat = around.threat
    h = radius / 100
    v = around.inside(random_directions(around, keys, seed, "steepest") * h)
    steepest = threat.dual_norm(around.gradient)
    for step in range(steps):
        _, gradient = around.error_and_gradient(v)
        _, ahead = around.error_and_gradient(v + h * threat.ascent(gradient))
        steepest = steepest.maximum(threat.dual_norm(gradient)).maximum(threat.dual_norm(ahead))
        move = threat.climb(ahead - gradient) * per_image(radius / (1 + step), v)
        v = around.inside(threat.retract(v + move, radius))
    return steepest
