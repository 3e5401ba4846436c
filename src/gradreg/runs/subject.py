"""A model as the subject of an evaluation: what it is, what its training cost, and whether it fits the images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.calling.asking import check_weights
from gradreg.classifier import Classifier
from gradreg.errors import ModelError
from gradreg.penalty.passes import Model


@dataclass(frozen=True)
class Subject:
    """The model that was evaluated and, if known, the cost of its training; the field names are a file format."""

    name: str
    source: str
    """What the user passed: a run directory, a shipped network, a weights file, a name."""
    architecture: str
    parameters: int
    objective: str | None = None
    """The objective of a gradreg run: "undefended", "gradient", "adversarial", …"""
    recipe: Mapping[str, Any] | None = None
    """The complete config of the run."""
    epochs: int | None = None
    hours: float | None = None
    machine: str | None = None
    """The hardware that the hours were spent on; None if the run did not record it."""
    arguments: tuple[str, ...] = ()
    """What named the model and its images on the command line besides: --data, --architecture, --set, …"""


def describe(model: Model, name: str | None) -> Subject:
    """The subject of a model that was passed in Python."""
    inner = model.model if isinstance(model, Classifier) else model
    kind = type(inner).__name__ if isinstance(inner, nn.Module) else getattr(inner, "__name__", type(inner).__name__)
    return Subject(name or kind, "Python", kind, parameters(inner))


def parameters(model: Model) -> int:
    """The number of parameters; 0 for a function."""
    if not isinstance(model, nn.Module):
        return 0
    check_weights(model)
    return sum(weight.numel() for weight in model.parameters())


def device_of(model: nn.Module, x: Tensor) -> torch.device:
    """The device of the model's parameters or buffers; that of the images if it has none."""
    return next((tensor.device for group in (model.parameters(), model.buffers()) for tensor in group), x.device)


def check_fits(model: Model, x: Tensor, data: str, classes: int | None, remedy: str = "") -> int:
    """The number of classes, by a forward of two images; a model that does not fit the images or classes raises.

    Two, since one that normalises by its batch fails on one, and is told of that in words of its own later.
    """
    classifier = Classifier.of(model)
    classifier._check_mode()  # before any forward: one in train mode would change running statistics
    try:
        with torch.no_grad():
            found = int(classifier(x[:2]).shape[1])
    except ModelError as error:
        cause = error.__cause__
        if cause is None:  # a sentence of ours, and not what the model raised
            raise
        words = " ".join(str(cause).split()).rstrip(".")
        raise ModelError(
            f"The model must accept images of {data}, of shape {tuple(x.shape[1:])}; got an error: {words}.{remedy}"
        ) from cause
    if classes is not None and found != classes:
        raise ModelError(
            f"The model has {found} classes and {data} has {classes}: evaluate it on the data that it was trained for."
        )
    return found
