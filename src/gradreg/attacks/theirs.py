"""Adversarial images that somebody else's attack found, asked once more: what holds here is taken, and nothing else."""

import torch
from torch import Tensor

from gradreg.attacks.result import AttackResult
from gradreg.attacks.verify import margins_alone
from gradreg.checks.scalars import shown
from gradreg.checks.tensors import check_batch, check_device, check_labels
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError, DataError
from gradreg.losses import misclassified
from gradreg.norms import Threat, ThreatName, checked, per_image
from gradreg.norms import threat as named_threat
from gradreg.penalty.passes import Model
from gradreg.precision import at_least_single


def verified(
    model: Model,
    x: Tensor,
    y: Tensor,
    adversarial: Tensor,
    *,
    threat: ThreatName | Threat,
    topk: int = 1,
    name: str = "given",
) -> AttackResult:
    """The result that these images amount to: in the box, at their distance, misclassified by a forward of each alone.

    An image for which that does not hold has an infinite distance. The costs are those of verifying.
    """
    norm, classifier, x = named_threat(threat), Classifier.of(model), check_batch(x)
    y, points = check_labels(y, len(x)), _points(adversarial, x)
    if not isinstance(name, str) or name in ("", "clean"):
        raise ConfigError(f'name must be a text, and not "clean", which names misclassified images; got {name!r}.')
    checked(norm, x)
    wrong = misclassified(classifier.check(x, y), y, topk)
    with classifier.counted(len(x), x.device) as queries:
        queries.forwards.add_(1)
        rows = (~wrong).nonzero().flatten()
        points = points.clamp(*classifier.box)
        reached = margins_alone(classifier, points[rows], y[rows], rows, topk)
        holds = torch.zeros_like(wrong).index_put((rows,), reached > 0)
    x = x.detach().to(points.dtype)
    distance = norm.norm(points - x).where(holds, torch.inf).masked_fill(wrong, 0)
    sides = zip(wrong.tolist(), holds.tolist(), strict=True)
    winner = tuple("clean" if each else name if held else "" for each, held in sides)
    kept = torch.where(per_image(holds, x).bool(), points, x)
    return AttackResult(distance, kept, winner, queries.forwards, queries.backwards, norm.name, topk)


def _points(adversarial: object, x: Tensor) -> Tensor:
    given = torch.as_tensor(adversarial) if hasattr(adversarial, "__array__") else adversarial
    if not isinstance(given, Tensor) or not given.is_floating_point() or given.shape != x.shape:
        raise DataError(
            f"adversarial must be one image for each of x, floats of shape {tuple(x.shape)}; got {shown(adversarial)}."
        )
    if isinstance(adversarial, Tensor):
        check_device("adversarial", given, x)
    points = given.detach().to(x.device, at_least_single(x.dtype))
    if not bool(points.isfinite().all()):
        raise DataError("adversarial must be finite: pass the clean image where the attack found none.")
    return points
