"""The bound that replaces ω by the largest curvature, for networks that are twice differentiable (remark in §2.2).

If no eigenvalue of the loss's input Hessian exceeds C, then ω(ε) ≤ Cε²/2 in l2. C is measured at images and not
between them, so this too is a heuristic. The loss is the soft margin, which is smooth and never below the margin.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gradreg.bounds.data import batches, check
from gradreg.bounds.errors import BoundsError
from gradreg.bounds.lanczos import largest_eigenvalue
from gradreg.calling.answers import leaf, required
from gradreg.calling.asking import named
from gradreg.calling.recomputing import differentiating
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_count, check_integer, check_number
from gradreg.checks.tensors import check_column, check_per_image
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError
from gradreg.fingerprints import image_keys
from gradreg.losses import soft_margin
from gradreg.norms import threat as threat_named
from gradreg.penalty.passes import Model
from gradreg.precision import at_least_single
from gradreg.randomness import stream

# Not twice differentiable: their Hessian is zero almost everywhere and misses the kinks, which is where ω comes from.
_KINKED = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Threshold,
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveMaxPool2d, nn.Softshrink, nn.Hardshrink,
)  # fmt: skip


@dataclass(frozen=True)
class Curvature:
    """Per image: the largest eigenvalue of the soft margin's input Hessian, the soft margin and ‖∇ℓ‖₂."""

    eigenvalue: Tensor
    residual: Tensor
    """Some eigenvalue lies within this of it."""
    converged: Tensor
    margin: Tensor
    grad_norm: Tensor

    kind = "heuristic"

    def bound(self, largest: float | Tensor | None = None) -> Tensor:
        """Radius per image for the curvature C = `largest`, as of calibration images; None: each image's own."""
        own = self.eigenvalue + self.residual
        given = own if largest is None else check_per_image("largest", largest, len(own))
        C = torch.as_tensor(given, dtype=own.dtype, device=own.device).expand_as(own)
        return curvature_radius((-self.margin).clamp(min=0), self.grad_norm, C)


def curvature_radius(gap: Tensor, grad_norm: Tensor, C: Tensor) -> Tensor:
    """The root of gap − Cε²/2 − ε‖∇ℓ‖: (−g + √(g² + 2C·gap))/C, in the form that divides by neither C nor g alone.

    Negative curvature is taken as 0. Infinite where the loss is flat and below 0.
    """
    images = len(check_column("gap", gap))
    for name, column in (("grad_norm", grad_norm), ("C", C)):
        check_column(name, column, images)
    C = C.clamp(min=0).to(gap.dtype)
    denominator = grad_norm + (grad_norm.square() + 2 * C * gap).sqrt()
    radius = 2 * gap / denominator
    return radius.where(gap > 0, 0)


def quadratic_strength(delta: float, C: float) -> float:
    """λ = δ/(1 − δC) of Prop. 3.1: what `lam` bounds an attacker who pays ‖v‖²/(2δ) for a perturbation v.

    With ℓ(x + v) ≤ ℓ(x) + ⟨∇ℓ, v⟩ + C‖v‖²/2 the attacker gains at most (λ/2)‖∇ℓ‖²_*, at ‖v‖ = λ‖∇ℓ‖_* along the
    direction of steepest ascent. C is the largest eigenvalue of the Hessian, so that ω(ε) = Cε²/2: the ε²C that
    stands above the proposition would make it δ/(1 − 2δC).
    """
    delta, C = check_number("delta", delta, above=0), check_number("C", C, least=0)
    if delta * C >= 1:
        raise ConfigError(f"delta must be below 1/C = {1 / C:g}, or the attacker's gain is unbounded; got {delta:g}.")
    return delta / (1 - delta * C)


@validated
def curvature(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    sharpness: float = 10.0,
    steps: int = 50,
    tolerance: float = 1e-3,
    batch_size: int = 64,
    seed: int = 0,
) -> Curvature:
    """The largest input-Hessian eigenvalue per image, by Lanczos with exact Hessian-vector products."""
    sharpness = check_number("sharpness", sharpness, above=0, usual="10 is usual")
    steps, tolerance = check_count("steps", steps), check_number("tolerance", tolerance, above=0)
    batch_size, seed = check_integer("batch_size", batch_size, least=1), check_integer("seed", seed, least=0)
    classifier = Classifier.of(model)
    _refuse_kinks(classifier)
    _, x, y = check(classifier, x, y)
    keys = image_keys(x).tolist()
    threat = threat_named("l2")
    parts = []
    for part in batches(len(x), batch_size):
        margin, gradient, product = _second_order(classifier, x[part], y[part], sharpness)
        start = torch.stack(
            [torch.from_numpy(stream("lanczos", seed, key).standard_normal(x[0].numel())) for key in keys[part]]
        ).to(gradient.device, gradient.dtype)
        found = largest_eigenvalue(product, start, steps=steps, tolerance=tolerance)
        parts.append((found.value, found.residual, found.converged, margin, threat.dual_norm(gradient)))
    return Curvature(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _second_order(
    classifier: Classifier, x: Tensor, y: Tensor, sharpness: float
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """Soft margins on probabilities, their gradients, and the product of their Hessians with one vector per image."""
    with torch.enable_grad():
        points = leaf(x)
        logits = classifier(points)
        losses = soft_margin(logits.to(at_least_single(logits.dtype)).softmax(1), y, sharpness)
        total = losses.sum()
        with named(x), differentiating():
            found = (
                torch.autograd.grad(total, points, create_graph=True, allow_unused=True)
                if total.requires_grad
                else [None]
            )
        gradient = required(found[0])
    if not bool(gradient.isfinite().all()):
        raise BoundsError("Some images have a gradient that is not finite, so they have no curvature: check the model.")

    def product(v: Tensor) -> Tensor:
        if not gradient.requires_grad:
            return torch.zeros_like(v)
        with named(x):
            (along,) = torch.autograd.grad(
                gradient, points, v.view_as(points), retain_graph=True, materialize_grads=True
            )
        return along.flatten(1)

    return losses.detach(), gradient.detach(), product


def _refuse_kinks(classifier: Classifier) -> None:
    kinked = next((type(layer).__name__ for layer in classifier.modules() if isinstance(layer, _KINKED)), None)
    if kinked is not None:
        raise BoundsError(
            f"The model has a {kinked}, which is not twice differentiable, so its Hessian does not bound the loss: use "
            "estimate_regularity, or a model with a smooth activation such as GELU."
        )
