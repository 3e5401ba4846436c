"""A model as the subject of an evaluation: what it is, what its training cost, and whether it fits the images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.classifier import Classifier
from gradreg.errors import GradregError, ModelError
from gradreg.penalty.passes import Model


@dataclass(frozen=True)
class Subject:
    """The model that was evaluated, and what its training cost if that is known."""

    name: str
    source: str
    """What the user pointed at: a run directory, a shipped network, a weights file, a name."""
    architecture: str
    parameters: int
    objective: str | None = None
    """One of "undefended", "gradient", "adversarial", …, for a run of ours."""
    recipe: Mapping[str, Any] | None = None
    """The run's whole config."""
    epochs: int | None = None
    hours: float | None = None
    machine: str | None = None
    """What the hours were spent on; None of a run that did not write it down."""


def describe(model: Model, name: str | None) -> Subject:
    """A model that is known from Python only."""
    inner = model.model if isinstance(model, Classifier) else model
    kind = type(inner).__name__ if isinstance(inner, nn.Module) else getattr(inner, "__name__", type(inner).__name__)
    return Subject(name or kind, "Python", kind, parameters(inner))


def parameters(model: Model) -> int:
    """How many numbers were trained."""
    return sum(weight.numel() for weight in model.parameters()) if isinstance(model, nn.Module) else 0


def device_of(model: nn.Module, x: Tensor) -> torch.device:
    """Where its numbers lie; where the images do if it has none, as a function has not."""
    return next((tensor.device for group in (model.parameters(), model.buffers()) for tensor in group), x.device)


def check_fits(model: Model, x: Tensor, data: str, classes: int | None) -> int:
    """The number of classes, by a forward of one image; a model for other images or other classes is refused."""
    classifier = Classifier.of(model)
    classifier._check_mode()  # before any forward: one in train mode would change running statistics
    try:
        with torch.no_grad():
            found = int(classifier(x[:1]).shape[1])
    except GradregError:
        raise
    except Exception as error:
        words = " ".join(str(error).split()).rstrip(".")
        raise ModelError(
            f"The model does not take the images of {data}, which are of shape {tuple(x.shape[1:])}: {words}."
        ) from error
    if classes is not None and found != classes:
        raise ModelError(
            f"The model has {found} classes and {data} has {classes}: evaluate it on the data that it was trained for."
        )
    return found
