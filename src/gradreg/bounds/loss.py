"""The loss ℓ that the bounds are about, and the ℓ₀ below which an image is always classified correctly: Prop. 2.2."""

from dataclasses import dataclass
from functools import partial
from math import log
from typing import Any, Literal, cast, get_args

from torch import Tensor

from gradreg.bounds.errors import BoundsError
from gradreg.calling.targets import check_losses
from gradreg.checks.scalars import check_choice, check_integer, check_number, shown
from gradreg.errors import ConfigError
from gradreg.losses import cross_entropy, margin, misclassified, probability_margin
from gradreg.penalty.passes import Criterion

Scores = Literal["probabilities", "logits"]
CriterionName = Literal["margin", "cross_entropy"]


@dataclass(frozen=True)
class Loss:
    """A loss per image with its threshold. One of the user's own is checked wherever it is evaluated."""

    name: str
    criterion: Criterion
    threshold: float
    topk: int
    trusted: bool
    """The loss is ours, and at or above its threshold on every misclassified image."""

    def __call__(self, logits: Tensor, y: Tensor, /) -> Tensor:
        losses = self.criterion(logits, y)
        if not self.trusted:
            self._check(losses, logits.detach(), y)
        return losses

    def gap(self, value: Tensor) -> Tensor:
        """max{ℓ₀ − ℓ(x), 0}, what a perturbation has to make up for."""
        return (self.threshold - value).clamp(min=0)

    def _check(self, losses: Tensor, logits: Tensor, y: Tensor) -> None:
        if not check_losses(losses, len(y)).is_floating_point():
            raise ConfigError(f"criterion must return floats; got {losses.dtype}.")
        below = misclassified(logits, y, self.topk) & (losses.detach() < self.threshold)
        if bool(below.any()):
            raise BoundsError(
                f"criterion must be at least threshold = {self.threshold:g} for every misclassified image; got "
                f"{float(losses.detach()[below].min()):.6g} for one. Lower it: the bounds would promise too much."
            )


def loss_of(
    criterion: CriterionName | Criterion, threshold: float | None, scores: Scores = "probabilities", topk: int = 1
) -> Loss:
    """The loss of that name, or a function of (logits, labels) with one value per image and its threshold.

    "margin" is the modified Carlini-Wagner loss of §2.2, on probabilities as in the paper or on logits: ℓ₀ = 0.
    "cross_entropy" below log(k + 1) means a probability above 1/(k + 1), so that the label is among the k largest.
    """
    check_choice("scores", scores, get_args(Scores))
    topk = check_integer("topk", topk, least=1)
    if threshold is not None:
        threshold = check_number("threshold", threshold)
    if not isinstance(criterion, str):
        return _own(criterion, threshold, topk)
    check_choice("criterion", criterion, get_args(CriterionName))
    if criterion == "margin":
        named, highest = partial(probability_margin if scores == "probabilities" else margin, topk=topk), 0.0
    else:
        named, highest = partial(cross_entropy), log(topk + 1)
    threshold = highest if threshold is None else threshold
    if threshold > highest:
        raise ConfigError(
            f"threshold must be at most {highest:.6g} for {criterion}, top-{topk}; got {threshold:.6g}. Above it an "
            "image may be misclassified."
        )
    return Loss(criterion, cast(Criterion, named), threshold, topk, trusted=True)


def _own(criterion: Any, threshold: float | None, topk: int) -> Loss:
    if not callable(criterion):
        names = ", ".join(get_args(CriterionName))
        raise ConfigError(
            f"criterion must be one of {names}, or a function of logits and labels; got {shown(criterion)}."
        )
    if threshold is None:
        raise ConfigError(
            "A criterion of your own needs threshold=, below which images are always classified correctly."
        )
    return Loss(_name_of(criterion), criterion, threshold, topk, trusted=False)


def _name_of(criterion: Criterion) -> str:
    """What a regularity remembers of a criterion of the user's own, since functions are not saved."""
    of = getattr(criterion, "func", criterion)
    named = of if hasattr(of, "__qualname__") else type(of)
    return f"{named.__module__}.{named.__qualname__}"


def same_loss(name: str, threshold: float, scores: Scores, topk: int, given: CriterionName | Criterion | None) -> Loss:
    """The loss that a regularity is about; one of the user's own has to be passed again."""
    if given is None or isinstance(given, str):
        if name not in get_args(CriterionName):
            raise ConfigError(f"The regularity is about the criterion {_brief(name)}: pass it as criterion=.")
        given = cast(CriterionName, name) if given is None else given
    loss = loss_of(given, threshold, scores, topk)
    if loss.name != name:
        raise ConfigError(f"criterion must be {_brief(name)}, which the regularity is about; got {_brief(loss.name)}.")
    return loss


def _brief(name: str) -> str:
    """A name as an error shows it: a file may hold any text for one."""
    return shown(name).strip("\"'")
