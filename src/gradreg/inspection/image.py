"""One image looked at closely: its nearest adversarial image by each attack, its bounds and its certificate."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gradreg.attacks import attack
from gradreg.bounds import Bound, BoundsError, Regularity, bounds, estimate_regularity
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_integer, check_names, shown
from gradreg.classifier import Classifier
from gradreg.config.options import options_of, takes
from gradreg.errors import ConfigError, DataError, silenced
from gradreg.extras import need
from gradreg.inspection.options import InspectionOptions
from gradreg.inspection.record import Inspection, Nearest
from gradreg.losses import probability_margin
from gradreg.norms import Threat, checked
from gradreg.penalty.passes import Model
from gradreg.smoothing import certify

# ω is looked for this far beyond the nearest adversarial image, on as many radii; farther out no bound can hold.
_BEYOND, _RADII = 1.25, 40


@takes(InspectionOptions)
@validated
def inspect_image(
    model: Model,
    x: Tensor,
    y: int | None = None,
    options: InspectionOptions | None = None,
    *,
    regularity: Regularity | None = None,
    classes: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **keywords: Any,
) -> Inspection:
    """Inspect one image, (channels, height, width) in [0, 1]; without `y` the model's own answer is the label.

    Options are an `InspectionOptions`, or its fields as keywords. Each attack is run by itself, and polished. The
    bounds use `regularity`; default: the "local" estimate around the image.
    """
    chosen = options_of(InspectionOptions, options, keywords)
    need("scipy", "The certificate of an inspection")
    classifier, norm, seed, topk = Classifier.of(model), chosen.norm, chosen.seed, chosen.topk
    if not isinstance(x, Tensor) or x.ndim != 3:
        raise DataError(f"x must be one image, (channels, height, width); got {shown(x)}.")
    y = None if y is None else check_integer("y", y, least=0, usual="the label")
    known = None if classes is None else check_names("classes", classes)
    if regularity is not None and (regularity.threat, regularity.topk) != (norm.name, topk):
        raise ConfigError(
            f"regularity must be for {norm.name} and top-{topk}, like the inspection; got one for {regularity.threat} "
            f"and top-{regularity.topk}."
        )
    names, image = chosen.attack_names, x[None]
    checked(norm, image)
    logits = classifier.check(image, torch.zeros(1, dtype=torch.int64, device=x.device))
    prediction = int(logits.argmax())
    label = torch.tensor([prediction if y is None else y], device=x.device)
    classifier.check(image, label)
    names_shown = tuple(map(str, range(logits.shape[1]))) if known is None else known
    if len(names_shown) != logits.shape[1]:
        raise DataError(f"Expected {logits.shape[1]} class names, one per logit; got {len(names_shown)}.")

    value, gradient = classifier.loss_and_gradient(image, label, lambda z, y: probability_margin(z, y, topk))
    found = []
    for number, name in enumerate(names, 1):
        found.append(_nearest(classifier, image, label, name, norm, topk, seed))
        if progress is not None:
            progress(number, len(names))
    reach = min(one.distance for one in found)
    bound, refusal = _bound(classifier, image, label, norm, topk, regularity, reach, seed)
    return Inspection(
        image=x,
        label=int(label),
        prediction=prediction,
        classes=names_shown,
        threat=norm.name,
        symbol=norm.symbol,
        margin=float(value),
        grad_norm=float(norm.dual_norm(gradient)),
        found=tuple(found),
        bound=bound,
        refusal=refusal,
        certificate=certify(
            classifier, image, sigma=chosen.sigma, n=chosen.samples, topk=topk, seed=seed, progress=False
        ),
        topk=topk,
    )


def _nearest(
    classifier: Classifier, image: Tensor, label: Tensor, name: str, threat: Threat, topk: int, seed: int
) -> Nearest:
    with silenced():  # the statements say it of a gradient of zero
        result = attack(classifier, image, label, threat=threat, attacks=[name], topk=topk, seed=seed, progress=False)
    with torch.no_grad():
        prediction = int(classifier(result.adversarial).argmax())
    counts = int(result.forwards), int(result.backwards)
    return Nearest(name, float(result.distance), result.adversarial[0], prediction, *counts)


def _bound(
    classifier: Classifier,
    image: Tensor,
    label: Tensor,
    threat: Threat,
    topk: int,
    regularity: Regularity | None,
    reach: float,
    seed: int,
) -> tuple[Bound | None, str]:
    if reach == 0:
        return None, "The image is misclassified as it is, so there is nothing to bound."
    try:
        if regularity is None:
            end = torch.linspace(0, _BEYOND * reach, _RADII + 1, dtype=torch.float64) if math.isfinite(reach) else None
            eps = None if end is None else end[1:].tolist()
            regularity = estimate_regularity(
                classifier, (image, label), threat, method="local", topk=topk, eps=eps, seed=seed
            )
        return bounds(classifier, image, label, regularity), ""
    except BoundsError as refused:
        return None, str(refused)
