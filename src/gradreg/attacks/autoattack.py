"""The reference AutoAttack as a cross-check, through the `pyautoattack` package when it is installed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.attacks.result import AttackResult
from gradreg.attacks.theirs import verified
from gradreg.calling.streams import RandomState
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_choice, check_integer, check_number
from gradreg.checks.tensors import check_batch, check_labels
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError
from gradreg.norms import Threat, ThreatName, per_image, robust_at
from gradreg.norms import threat as named_threat
from gradreg.penalty.passes import Model

_NORMS = ("linf", "l2", "l1")
VERSIONS = ("standard", "plus")
# Of a radius. Pixels near 1 are rounded to 6e-8 in single precision, which is much of a small radius.
_LESS = (2e-6, 1e-5, 1e-4, 1e-3)


@validated
def autoattack(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    eps: float,
    threat: ThreatName | Threat = "linf",
    version: str = "standard",
    seed: int = 0,
    batch_size: int = 256,
) -> AttackResult:
    """AutoAttack (Croce & Hein 2020) at one radius; its adversarial images are verified here, each alone.

    It does not report which images it evaluates, so `forwards` and `backwards` are averages over all images. It reseeds
    the global random state, which is restored afterwards.
    """
    eps = check_number("eps", eps, above=0, usual="a radius in pixel units")
    seed, batch_size = check_integer("seed", seed, least=0), check_integer("batch_size", batch_size, least=1)
    check_choice("version", version, VERSIONS)
    norm, classifier, x = named_threat(threat), Classifier.of(model), check_batch(x)
    y = check_labels(y, len(x))
    if norm.name not in _NORMS:
        raise ConfigError(f"AutoAttack is for {', '.join(_NORMS)}; got {norm.name}. Use attack().")
    _package()
    classifier.check(x, y)
    crafted = craft(classifier, x, y, norm, eps, version, seed, batch_size)
    found = verified(classifier, x, y, crafted.images, threat=norm, name="autoattack")
    forwards, backwards = torch.full_like(y, crafted.forwards), torch.full_like(y, crafted.backwards)
    return replace(found, eps=(eps,), forwards=forwards, backwards=backwards)


@dataclass(frozen=True)
class Crafted:
    """What the reference makes of images, and its propagations per image, on average."""

    images: Tensor
    forwards: int
    backwards: int


def craft(
    classifier: Classifier,
    x: Tensor,
    y: Tensor,
    norm: Threat,
    eps: float,
    version: str,
    seed: int,
    batch_size: int | None = None,
) -> Crafted:
    """Run the reference on checked images and put what it returns into the ball and the box."""
    package, classes = _package(), classifier.ask(x[:1]).shape[1]
    if classes < 4:
        raise ConfigError(
            f"AutoAttack's targeted losses need a model with at least 4 classes; got {classes}. Use attack()."
        )
    counted = CountedRows(classifier)
    with RandomState.now(x.device).replayed():
        reference: Any = package.AutoAttack(
            counted, norm=norm.name.capitalize(), eps=eps, seed=seed, version=version, device=x.device
        )
        for part in (reference.apgd_targeted, reference.fab):
            part.n_target_classes = min(9, classes - 1)
        found = reference.run_standard_evaluation(x, y, batch_size=batch_size or len(x))
        adversarial: Tensor = found[0] if isinstance(found, tuple) else found
    images = _inside(adversarial.detach().to(x), x, norm, eps).clamp(*classifier.box)
    return Crafted(images, -(-counted.forwards // len(x)), -(-counted.backwards // len(x)))


def _inside(points: Tensor, x: Tensor, norm: Threat, eps: float) -> Tensor:
    """The points moved into the ball: rounding leaves many of them a little outside, where they would not count."""
    for less in _LESS:
        outside = robust_at(norm.norm(points - x), eps)
        moved = x + norm.project(points - x, eps * (1 - less))
        points = torch.where(per_image(outside, x).bool(), moved, points)
    return points


def _package() -> Any:
    try:
        return import_module("pyautoattack")
    except ImportError as error:
        raise ConfigError("autoattack needs pyautoattack, which is not installed: pip install pyautoattack.") from error


class CountedRows(nn.Module):
    """A model that counts rows: forwards as they are asked for, backwards as gradients come back to its logits."""

    def __init__(self, model: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model = model
        self.forwards = self.backwards = 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        logits = self.model(x)
        if logits.requires_grad:
            logits.register_hook(self._came_back)
        return logits

    def _came_back(self, gradient: Tensor) -> None:
        # A hook also sees the gradients of rows that are differentiated in vain; they are work too.
        self.backwards += len(gradient)
