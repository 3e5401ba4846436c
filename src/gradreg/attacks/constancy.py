"""Does a model answer with a gradient as it does without, and at the end of a search as at its beginning?"""

import torch
from torch import Tensor

from gradreg.calling.answers import leaf
from gradreg.calling.contents import contents, written_by_a_user
from gradreg.calling.repeats import REPEATABLE, ROUNDED, apart_each
from gradreg.classifier import Classifier
from gradreg.errors import ModelError
from gradreg.precision import at_least_single


class Constancy:
    """How far answers about the clean images have moved, without a look at the device."""

    def __init__(self, classifier: Classifier, x: Tensor, logits: Tensor) -> None:
        self._classifier, self._x, self._logits = classifier, x, logits
        self._counts = _counts(classifier)
        self.with_gradient = torch.zeros((), dtype=at_least_single(logits.dtype), device=x.device)
        """The largest move between an answer without a gradient and one with it, as a fraction of the range."""
        self.asked = self.noted = False
        """Whether an attack has asked for a gradient, and whether what it was told was taken in."""
        self.compared = torch.zeros((), dtype=torch.bool, device=x.device)
        """Whether it did so at a clean image."""

    def note(self, points: Tensor, logits: Tensor, rows: Tensor) -> None:
        """What the model said where a gradient was asked for: it counts at those points that are clean images."""
        self.noted = True
        clean = (points == self._x[rows]).flatten(1).all(1)
        moved = apart_each(self._logits[rows], logits).where(clean, 0)
        self.with_gradient = torch.maximum(self.with_gradient, moved.amax().to(self.with_gradient.dtype))
        self.compared = self.compared | clean.any()

    def compare(self) -> None:
        """Ask with a gradient at the clean images, by one forward, where no attack did so in the model's precision."""
        rows = torch.arange(len(self._x), device=self._x.device)
        with torch.enable_grad():
            logits = self._classifier(leaf(self._x), rows).detach()
        self.note(self._x, logits, rows)

    def since(self) -> Tensor:
        """How far the answers about all clean images have moved since the search began.

        Tensors and fractions that a forward moves are put back. Whole numbers, which count queries as a rule, are not:
        only a model that has changed some is asked again.
        """
        if _counts(self._classifier) == self._counts:
            return torch.zeros_like(self.with_gradient)
        rows = torch.arange(len(self._x), device=self._x.device)
        with torch.no_grad():
            again = self._classifier(self._x, rows)
        return apart_each(self._logits, again).amax().to(self.with_gradient.dtype)


def _counts(classifier: Classifier) -> list[object]:
    """The whole numbers and texts in attributes of a user's modules, and how long its containers are."""
    modules = [module for module in contents(classifier.model)[0] if written_by_a_user(module)]
    held = [value for keeper in (classifier.model, *modules) for value in getattr(keeper, "__dict__", {}).values()]
    return [
        value if isinstance(value, int | str) else len(value)
        for value in held
        if isinstance(value, int | str | list | dict | set)
    ]


def check_constancy(with_gradient: float, since: float) -> None:
    """Refuse a model of which an attack cannot know what it says of an image."""
    if not with_gradient <= ROUNDED:
        raise ModelError(
            f"The model's logits move by {with_gradient:.0%} of their range when a gradient is asked for, so an attack "
            "sees another model than its user: compute the same in both cases, with a custom backward if need be."
        )
    if not since <= REPEATABLE:
        raise ModelError(
            f"The model's logits for the same images moved by {since:.2g} of their range in the course of the search, "
            "so what was found is about another model than was passed: keep its state from changing in eval mode."
        )
