"""Can a finite difference of this model be believed? Tried at its first step, before a penalty is made of it.

A difference needs a loss that repeats, and arithmetic that resolves its change over h. Neither shows in the logits: a
model may keep state, draw noise, or compute in bf16 inside and return float32.
"""

from dataclasses import dataclass, replace
from math import pi, sqrt

import torch
from torch import Tensor

from gradreg.calling.targets import at
from gradreg.calling.values import changed
from gradreg.defaults import callers_default
from gradreg.errors import ModelError, PrecisionError, warn
from gradreg.norms import Threat
from gradreg.penalty.options import Scale, per_pixel
from gradreg.penalty.passes import Calls, Pass, needs_classes
from gradreg.precision import at_least_single, contenders

# A call is refused if rounding makes up more than this fraction of the finite difference: of half-precision logits,
# where it is known from their size, and of anything else, where it is measured.
_TOLERANCE, _MEASURED_TOLERANCE = 0.02, 0.05
# The loss may be a mean of losses at both ends, of which no rounding is magnified: low precision then does no more harm
# than in plain training, and the difference is only looked at. It must still rise above its rounding, as measured: by
# the size of its logits alone, a network that is sure of most images would be refused in the middle of its training.
_TOLERANCE_OF_MEANS = 0.5
# So far along the difference the loss is looked at again: a curved loss is a parabola there, a rounded one is not.
_PART = 1 / 8
# The third difference of errors of deviation e has the deviation √20·e, the first √2·e; a mean size is 0.8 of it.
_FROM_THIRD = (2 / 20) ** 0.5 / 0.8
# What a parabola through five points leaves of such errors has the deviation e in each of two directions; its mean
# length is √(π/2)·e.
_FROM_FIVE = sqrt(2) / sqrt(pi / 2)
# Errors of neighbours have much in common. At worst they are a random walk over the move, of which the third difference
# shows 3/80 (in squares) and the parabola's rest, made of farther points, 12/35.
_WALK_NEAR, _WALK_WIDE = sqrt(80 / 3), 35 / 12
# No pixel moves by more than this part of the largest one in the wide measurement: eight steps of 8-bit images.
_MOST = 1 / 32
# Of the images, weighted by their slopes, so many may have a loss that does not move at all.
_STILL = 0.2
# An error does not matter if it stays below this over as many moves as lead from an image to zero.
_NEGLIGIBLE = 1e-3
# Near to an image the loss may climb so many times faster or slower than its gradient says, where so little is rounded
# that an eighth of the difference shows it.
_MISLED, _RESOLVED = 2.0, 0.01
# Two losses of one image differ by less than this, relative to 1 and their size.
_SAME = 1e-3
# How h is enlarged in search of one that would do.
_GROWTH, _TRIES = 4.0, 10


def check(
    calls: Calls,
    part: Pass,
    geometry: Threat,
    scale: Scale,
    move: Tensor,
    slope: Tensor,
    h: float | Tensor,
    *,
    mean: bool,
) -> None:
    """Refuse a difference over `move` at a model's first step, and when it becomes less than half as long as it was.

    A criterion, an `output` and a kind of norm have a first step each.
    `mean`: the loss is one of the losses at both ends, so that the difference is not magnified.
    It costs eight forwards at the first step, one at the 10th, 100th, …, and makes an accelerator wait then.
    """
    if not mean:
        _refuse_half_precision_logits(part, slope, h)
    tolerance = _TOLERANCE_OF_MEANS if mean else _MEASURED_TOLERANCE
    kind = (part.x.dtype, torch.is_autocast_enabled(part.x.device.type), mean, type(geometry))
    length = per_pixel(h, geometry, part.at, scale)
    repeats, resolves = calls.known.due(kind, length)
    if not repeats or not _can_be_looked_at(part.losses, part.logits, slope):
        return
    trial = _Trial(calls, part, move, slope * h)
    distance = geometry.norm(part.at) / geometry.norm(move).clamp(min=torch.finfo(slope.dtype).tiny)
    # As the model was compiled: without gradients it would be compiled once more.
    with torch.set_grad_enabled(calls.compiled):
        before = calls.writes()
        spread = trial.spread()
        if calls.writes() != before and trial.moves_weights():
            warn(
                "The model changes its own weights in every forward, and a penalty step makes several: they move more "
                "often than in plain training. Keep what moves by itself in buffers, which move once per step."
            )
        error, climb = trial.rounding_and_climb() if resolves else (torch.zeros_like(spread), torch.ones_like(spread))
        rise, loss = trial.rise.mean(), part.losses.detach().abs().mean()
        apart, share, along, rise, moves, loss = torch.stack(
            [spread, error, climb, rise, distance.mean(), loss]
        ).tolist()
        rounding = 64 * torch.finfo(part.losses.dtype).eps * (1 + loss)
        if not apart <= max(_MEASURED_TOLERANCE * rise, rounding) and not apart * moves <= _NEGLIGIBLE:
            raise ModelError(
                f"The model's losses differ by {apart:.2g} when the same images are passed again, and the penalty is "
                f"about differences of {rise:.2g}: keep state in buffers, and draw noise from the global streams of "
                "torch or NumPy or from a generator that is an attribute of the model."
            )
        if share > tolerance and share * rise * moves > _NEGLIGIBLE:
            h = torch.as_tensor(h).min().item()
            raise PrecisionError(
                f"Rounding makes up about {min(share, 10):.0%} of a finite difference over h = {h:g} in this model: "
                f"{_way_out(trial, h, tolerance)}; if it has autocast, half-precision parts or quantisation inside, "
                "take them out instead."
            )
    if share <= _RESOLVED and (along < 1 / _MISLED or along > _MISLED):
        warn(
            f"Along the gradient at the images the loss rises {along:.2g} times as fast as that gradient says, so the "
            "penalty trains on another slope: something in the model changes gradients, such as a hook, a custom "
            "backward or gradient reversal. Let them pass to the images as they are."
        )
    if resolves and _mixes_images(calls, part):
        warn(
            "criterion gives an image another loss when it is asked about it alone: the penalty takes the gradient of "
            "the sum, where what the losses of a batch share may cancel out. Compute each loss from its own image."
        )
    calls.known.trust(kind, length)


@dataclass(frozen=True)
class _Trial:
    """A recorded pass, the move of its images that a difference is to be taken over, and the rise expected of it."""

    calls: Calls
    part: Pass
    move: Tensor
    rise: Tensor

    def spread(self) -> Tensor:
        """How far losses are from what they were, on the same images."""
        return (self._losses(0.0) - self.part.losses.detach()).abs().mean()

    def moves_weights(self) -> bool:
        """Whether one more pass changes weights; what cuts them to a limit, say, writes to them and changes nothing."""
        before = [weight.detach().clone() for weight in self.calls.weights]
        self._losses(0.0)
        return any(changed(list(zip(before, (weight.detach() for weight in self.calls.weights), strict=True))))

    def rounding(self) -> Tensor:
        """The fraction of the difference that is rounding error."""
        return self.rounding_and_climb()[0]

    def rounding_and_climb(self) -> tuple[Tensor, Tensor]:
        """The fraction of the difference that is rounding error, measured near to x and as far from it as x + hd is.

        And the rise of the losses near to x, in units of that which is expected.
        What is smooth and yet curved far away is so little near to x that it cannot be a random walk there.
        Where many losses do not move at all, everything is: a step below the resolution looks perfectly smooth.
        """
        at, far = self.part.losses.detach(), self._losses(_PART)
        still = ((far == at) * self.rise).sum() / self.rise.sum()
        ahead, behind = self._losses(_PART / 2), self._losses(-_PART / 2)
        climbs = torch.stack([at - behind, ahead - at]).mean(1) / (_PART / 2 * self.rise.mean())
        # The slope of a loss that bends lies between those on both sides.
        climb = torch.ones_like(climbs[0]).clamp(climbs.amin(), climbs.amax())
        near, wide = self._near(far, ahead, behind), self._wide()
        walks = (wide / near.clamp(min=torch.finfo(near.dtype).tiny)).clamp(1, _WALK_WIDE).sqrt()
        found = torch.maximum(near, torch.minimum(walks * wide, _WALK_NEAR * near))
        return torch.where(still > _STILL, torch.maximum(found, still), found), climb

    def _near(self, far: Tensor, ahead: Tensor, behind: Tensor) -> Tensor:
        """By ℓ(x + s) − 3ℓ(x + s/2) + 3ℓ(x) − ℓ(x − s/2) for a part s of the move.

        Too small where such near points are rounded alike inside of the model, as x and x + hd are not.
        """
        third = far - 3 * ahead + 3 * self.part.losses.detach() - behind
        return _FROM_THIRD * third.abs().mean() / self.rise.mean()

    def _wide(self) -> Tensor:
        """By what a parabola leaves of the losses at x, x ± j/2 and x ± j, where j is the move with random signs.

        Each pixel moves as far as in the difference, so that as much is rounded anew. But j hardly climbs, and the loss
        is much less curved along it than along the gradient.
        """
        dice = torch.Generator().manual_seed(0)
        signs = torch.randint(2, self.move.shape[1:], generator=dice, device="cpu").to(self.move.device) * 2 - 1
        most = _MOST * self.part.at.abs().amax().to(self.move.dtype)
        j = signs * torch.minimum(self.move.abs(), most)
        ahead, behind = self._losses(1.0, j), self._losses(-1.0, j)
        near, back = self._losses(0.5, j), self._losses(-0.5, j)
        odd = ahead - behind - 2 * (near - back)
        even = ahead + behind - 4 * (near + back) + 6 * self.part.losses.detach()
        left = (odd.square() / 10 + even.square() / 70).sqrt()
        return _FROM_FIVE * left.mean() / self.rise.mean()

    def _losses(self, share: float, move: Tensor | None = None) -> Tensor:
        x, move = self.part.at, self.move if move is None else move
        return self.calls.repeat(self.part, (x + share * move).to(x.dtype)).detach()


def _way_out(trial: _Trial, h: float, tolerance: float) -> str:
    for factor in (_GROWTH**power for power in range(1, _TRIES)):
        longer = replace(trial, move=factor * trial.move, rise=factor * trial.rise)
        if bool(longer.rounding() <= tolerance):
            return f"use h ≥ {factor * h:.2g}"
    return "no larger h would do"


def _mixes_images(calls: Calls, part: Pass) -> bool:
    """Whether the criterion's loss of the first image depends on the other images of the batch."""
    if len(part.at) < 2 or needs_classes(calls.criterion, part.y):
        return False
    logits = part.logits.detach()  # which the criterion may write into, and have written into
    with torch.no_grad(), callers_default():
        try:
            with part.begun.replayed():
                first = calls.criterion(logits.clone(), part.y)[:1]
            with part.begun.replayed():
                alone = calls.criterion(logits[:1].clone(), at(part.y, slice(0, 1)))
        except Exception:  # of somebody's criterion, which may need a whole batch
            return False
    if not isinstance(alone, Tensor) or alone.shape != first.shape:
        return False
    return bool((alone - first).abs() > _SAME * (1 + first.abs()))


def _can_be_looked_at(losses: Tensor, logits: Tensor, slope: Tensor) -> bool:
    """Losses that are not finite are another trouble, which a loop sees; gradients that are not train on nothing."""
    if losses.is_meta:
        return False
    finite = slope.isfinite()
    stuck = (slope == 0).all() & (losses > _SAME).all() & _told_apart(logits)
    losses_are, gradients_are, stuck = torch.stack([losses.isfinite().all(), finite.all(), stuck]).tolist()
    if losses_are and not gradients_are:
        without = (~finite).nonzero()[:, 0].tolist()
        raise ModelError(
            f"The gradient at the images is not finite for {len(without)} of {len(slope)} images, the first of them "
            f"image {without[0]}, though the loss is: something in the model has no finite slope there, such as sqrt "
            "or pow at 0, also in a branch of torch.where that is not taken."
        )
    if stuck:
        warn(
            f"The gradient at all {len(slope)} images is exactly zero, though the model tells them apart: the penalty "
            "is 0 and trains nothing: if the model rounds its images or compares them with thresholds, give that a "
            "straight-through gradient."
        )
    return bool(losses_are)


def _told_apart(logits: Tensor) -> Tensor:
    """Whether a model says anything else of one image than of the next: not if its last layer begins at zero."""
    return (logits[1:] != logits[:-1]).any()


def _refuse_half_precision_logits(part: Pass, slope: Tensor, h: float | Tensor) -> None:
    """Compare the rounding of half-precision logits with the change of the loss that the difference is to resolve."""
    kind = part.logits.dtype
    if kind == at_least_single(kind):
        return
    logits = part.logits.detach().float()
    rounding = torch.finfo(kind).eps * contenders(logits.flatten(1)).abs().amax(1)
    safe = (rounding / (_TOLERANCE * slope)).nanmedian().item()
    smallest = torch.as_tensor(h).min().item()
    if smallest < safe:
        name = str(kind).removeprefix("torch.")
        raise PrecisionError(
            f"In {name}, rounding makes up about {_TOLERANCE * safe / smallest:.0%} of a finite difference "
            f"over h = {smallest:g}: use h ≥ {safe:.2g}, or keep the weights in float32 and leave autocast='off'."
        )
