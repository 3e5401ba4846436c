"""Learning rate schedules as pure functions of the progress: nothing to save, nothing to step, no off-by-one.

A schedule maps `(epoch, epochs)`, the fractional number of finished epochs and the planned number, to the factor on the
optimizer's learning rate.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from math import cos, pi
from typing import Annotated, Protocol

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import NotNegative, Range
from gradreg.errors import ConfigError


class Schedule(Protocol):
    """The factor on the learning rate."""

    def __call__(self, epoch: float, epochs: int, /) -> float: ...


@dataclass(frozen=True)
class Constant:
    """The same rate throughout."""

    def __call__(self, epoch: float, epochs: int, /) -> float:
        return 1.0


@dataclass(frozen=True)
class Piecewise:
    """The rate is multiplied by `factor` when each of `milestones`, in epochs, is reached."""

    milestones: tuple[float, ...]
    factor: NotNegative = 0.1

    def __post_init__(self) -> None:
        check_fields(self)
        _check_increasing("milestones", self.milestones, strictly=True)

    def __call__(self, epoch: float, epochs: int, /) -> float:
        return self.factor ** bisect_right(self.milestones, epoch)


@dataclass(frozen=True)
class Linear:
    """Straight lines between `knots` of (epoch, factor), at every step; two knots at one epoch make a jump."""

    knots: tuple[tuple[float, NotNegative], ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if len(self.knots) < 2:
            raise ConfigError(f"knots must be at least two pairs (epoch, factor); got {len(self.knots)}.")
        _check_increasing("knots", tuple(epoch for epoch, _ in self.knots), strictly=False)

    def __call__(self, epoch: float, epochs: int, /) -> float:
        after = bisect_right(self.knots, epoch, key=lambda knot: knot[0])
        if after == 0:
            return self.knots[0][1]
        if after == len(self.knots):
            return self.knots[-1][1]
        (start, low), (end, high) = self.knots[after - 1 : after + 1]
        return low + (high - low) * (epoch - start) / (end - start)


@dataclass(frozen=True)
class OneCycle:
    """Half a cosine up over the first `warmup` of training, half a cosine down over the rest (Smith 2018)."""

    warmup: Annotated[float, Range(least=0, below=1, usual="a fraction of training")] = 0.3
    start: NotNegative = 0.04
    end: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, epoch: float, epochs: int, /) -> float:
        done = epoch / epochs
        if done < self.warmup:
            return _cosine(self.start, 1.0, done / self.warmup)
        return _cosine(1.0, self.end, (done - self.warmup) / (1 - self.warmup))


SCHEDULES: dict[str, type] = {
    "constant": Constant,
    "piecewise": Piecewise,
    "linear": Linear,
    "one-cycle": OneCycle,
}


def _cosine(first: float, last: float, progress: float) -> float:
    return last + (first - last) * (1 + cos(pi * min(progress, 1.0))) / 2


def _check_increasing(name: str, epochs: tuple[float, ...], *, strictly: bool) -> None:
    if any(b < a or (strictly and a == b) for a, b in pairwise(epochs)) or (epochs and epochs[0] < 0):
        raise ConfigError(f"{name} must be at increasing epochs from 0 on; got {', '.join(f'{e:g}' for e in epochs)}.")
