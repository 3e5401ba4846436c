"""The public functions as one table: each asks a model about the same few images, for answers to compare."""

from collections.abc import Callable
from typing import Any

import torch
from kinds import X
from torch import Tensor

import gradreg
from gradreg.bounds import curvature
from gradreg.errors import GradregError, GradregWarning

Answer = dict[str, Tensor]

EVALUATING = (
    *("attack quick", "attack quick linf", "attack quick eps", "attack standard", "attack paper"),
    *("estimate_regularity", "bounds", "clever", "curvature", "certify", "evaluate", "inspect_image"),
)
"""Functions that ask a finished model. Training functions take models that these refuse, such as randomised ones."""


def labels(model: Any) -> Tensor:
    """The answers of the twin, or anything."""
    try:
        with torch.no_grad():
            return torch.as_tensor(model(X.clone()).argmax(1)).expand(len(X)).clone()
    except (AttributeError, RuntimeError, ValueError, IndexError):
        return torch.arange(len(X)) % 2


def _penalised(out: gradreg.RegularizedLoss, model: Any) -> Answer:
    if out.loss.requires_grad:
        out.loss.backward()
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
    gradients = [weight.grad.flatten().float() for weight in parameters if weight.grad is not None]
    return {
        "loss": out.loss.detach(),
        "grad_norm": out.grad_norm,
        "slope": out.slope,
        "weights": torch.cat([torch.zeros(0), *gradients]),
    }


def _attack(model: Any, y: Tensor, **options: Any) -> Answer:
    found = gradreg.attack(model, X, y, **options)
    norm = gradreg.threat(options.get("threat", "l2")).norm(found.adversarial - X)
    hit = found.success & (found.distance > 0)
    assert torch.allclose(norm[hit], found.distance[hit], atol=1e-6)
    return {"distance": found.distance, "adversarial": found.adversarial}


def _bounds(model: Any, y: Tensor) -> Answer:
    found = gradreg.bounds(model, X, y, gradreg.estimate_regularity(model, (X, y), method="local"))
    return {"lipschitz": found.lipschitz, "omega": found.omega}


def _certify(model: Any, y: Tensor) -> Answer:
    found = gradreg.certify(model, X, sigma=0.1, n=300, alpha=0.01)
    return {"prediction": found.prediction, "radius": found.radius}


def _diagnose(model: Any, y: Tensor) -> Answer:
    flags = gradreg.diagnose(model, X, y, threat="l2")
    return {flag.code: torch.tensor(["info", "warning", "error"].index(flag.severity)) for flag in flags}


def _evaluate(model: Any, y: Tensor) -> Answer:
    options: dict[str, Any] = {"smoothing": "0.1", "samples": 300, "radii": "0.05", "alpha": 0.01}
    found = gradreg.evaluate(model, (X, y), threat="l2", attacks="quick", diagnosis=False, **options)
    return {"wrong": found.wrong, "distance": found.threats["l2"].distance}


def _inspect(model: Any, y: Tensor) -> Answer:
    found = gradreg.inspect_image(model, X[0], attacks="fmn", sigma=0.1, samples=500)
    return {"nearest": torch.tensor(found.nearest), "margin": torch.tensor(found.margin)}


def _fit(model: Any, y: Tensor) -> Answer:
    objective = {"name": "gradient", "threat": "l2", "lam": 0.1}
    data = ([(X, y)], [(X, y)])
    found = gradreg.fit(model, data, objective, epochs=2, optimizer={"name": "sgd", "lr": 0.01})
    return {"loss": torch.tensor([epoch["loss"] for epoch in found.metrics])}


def _classifier(model: Any, y: Tensor) -> Answer:
    classifier = gradreg.Classifier(model)
    return {"logits": classifier(X).detach()}


def _clever(model: Any, y: Tensor) -> Answer:
    return {"score": gradreg.clever(model, X, y, radius=0.3, blocks=5, samples=10).score}


def _regularity(model: Any, y: Tensor) -> Answer:
    return {"omega": gradreg.estimate_regularity(model, (X, y), method="local", threat="linf").omega}


CALLS: dict[str, Callable[[Any, Tensor], Answer]] = {
    "Classifier": _classifier,
    "regularized_loss": lambda m, y: _penalised(gradreg.regularized_loss(m, X, y, lam=0.1), m),
    "GradientPenalty": lambda m, y: _penalised(gradreg.GradientPenalty(threat="linf", eps=8 / 255)(m, X, y), m),
    "attack quick": lambda m, y: _attack(m, y, attacks="quick"),
    "attack quick linf": lambda m, y: _attack(m, y, attacks="quick", threat="linf"),
    "attack quick eps": lambda m, y: _attack(m, y, attacks="quick", eps=0.5),
    "attack standard": lambda m, y: _attack(m, y, attacks="standard"),
    "attack paper": lambda m, y: _attack(m, y, attacks="paper"),
    "estimate_regularity": _regularity,
    "bounds": _bounds,
    "clever": _clever,
    "curvature": lambda m, y: {"eigenvalue": curvature(m, X, y, steps=10).eigenvalue},
    "certify": _certify,
    "diagnose": _diagnose,
    "evaluate": _evaluate,
    "inspect_image": _inspect,
    "fit": _fit,
}


def ask(call: str, model: Any, y: Tensor) -> Answer | GradregError | GradregWarning:
    """What the function says; nothing but a GradregError is caught, or a warning, which tests make an error."""
    before = X.clone()
    torch.manual_seed(0)
    try:
        return CALLS[call](model, y)
    except (GradregError, GradregWarning) as refusal:
        return refusal
    finally:
        assert torch.equal(X, before), "the caller's images were written to"
