"""The reference AutoAttack as a cross-check, through the `pyautoattack` package when it is installed."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.attacks.result import AttackResult
from gradreg.calling.streams import RandomState
from gradreg.checks.scalars import check_choice, check_integer, check_number
from gradreg.checks.tensors import check_batch, check_labels
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError
from gradreg.losses import margin, misclassified
from gradreg.norms import Threat, ThreatName, per_image
from gradreg.norms import threat as named_threat
from gradreg.penalty.passes import Model

_NORMS = ("linf", "l2", "l1")


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
    """AutoAttack (Croce & Hein 2020) at one radius; its adversarial images are verified here.

    It does not report which images it evaluates, so `forwards` and `backwards` are averages over all images. It reseeds
    the global random state, which is restored afterwards.
    """
    eps = check_number("eps", eps, above=0, usual="a radius in pixel units")
    seed, batch_size = check_integer("seed", seed, least=0), check_integer("batch_size", batch_size, least=1)
    check_choice("version", version, ("standard", "plus"))
    norm, classifier, x = named_threat(threat), Classifier.of(model), check_batch(x)
    y = check_labels(y, len(x))
    if norm.name not in _NORMS:
        raise ConfigError(f"AutoAttack is for {', '.join(_NORMS)}; got {norm.name}. Use attack().")
    try:
        package = import_module("pyautoattack")
    except ImportError as error:
        raise ConfigError("autoattack needs pyautoattack, which is not installed: pip install pyautoattack.") from error
    logits = classifier.check(x, y)
    if logits.shape[1] < 4:
        raise ConfigError(
            f"AutoAttack's targeted losses need a model with at least 4 classes; got {logits.shape[1]}. Use attack()."
        )
    counted = CountedRows(classifier)
    random = RandomState.now(x.device)
    with random.replayed():
        reference: Any = package.AutoAttack(
            counted, norm=norm.name.capitalize(), eps=eps, seed=seed, version=version, device=x.device
        )
        for part in (reference.apgd_targeted, reference.fab):
            part.n_target_classes = min(9, logits.shape[1] - 1)
        found = reference.run_standard_evaluation(x, y, batch_size=batch_size)
        adversarial: Tensor = found[0] if isinstance(found, tuple) else found
    # Rounding leaves many of its images a little outside the ball, where they would not count.
    inside = norm.project(adversarial.detach().to(x) - x, eps * (1 - 2e-6))
    adversarial = (x + inside).clamp(*classifier.box)
    wrong = misclassified(logits, y)
    with torch.no_grad():
        verified = (margin(classifier(adversarial), y) > 0) & ~wrong
    distance = norm.norm(adversarial - x).where(verified, torch.inf).masked_fill(wrong, 0)
    names = zip(wrong.tolist(), verified.tolist(), strict=True)
    each = torch.full_like(y, -(-counted.forwards // len(x)), dtype=torch.int64)
    back = torch.full_like(y, -(-counted.backwards // len(x)), dtype=torch.int64)
    return AttackResult(
        distance,
        torch.where(per_image(verified, x).bool(), adversarial, x),
        tuple("clean" if clean else "autoattack" if won else "" for clean, won in names),
        each,
        back,
        norm.name,
        eps=(eps,),
    )


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
