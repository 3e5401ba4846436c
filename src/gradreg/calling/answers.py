"""Asking a model: its input is not written to, and what it returns is read as logits or refused in one sentence."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from torch import Tensor

from gradreg.checks.objects import Must
from gradreg.errors import ModelError

MODEL = Must("an nn.Module or a function from images to logits", ModelError)
Model = Annotated[Callable[[Tensor], Any], MODEL]
"""From a batch to logits, to an object with `.logits`, to a mapping with "logits"; anything else needs an `Output`."""
OUTPUT = Must("a function from what the model returns to logits")
Output = Annotated[Callable[[Any], Tensor], OUTPUT]
"""From whatever a model returns to logits."""


def answer(model: Model, x: Tensor, output: Output | None = None) -> Tensor:
    """The model's logits for `x`, on a copy of a leaf `x` that the model would write into.

    Autograd refuses that before anything is written, so a copy is made only then: compiled models warn of an input that
    is not a leaf.
    """
    try:
        return read(model(x), output)
    except RuntimeError as error:
        if "in-place operation" not in str(error):
            raise
    return read(model(x.clone()), output)


def read(returned: object, output: Output | None = None) -> Tensor:
    """The tensor of logits in what a model returned."""
    if output is not None:
        try:
            found: object = output(returned)
        except Exception as error:
            raise ModelError(
                f"output= failed on what the model returned, a {type(returned).__name__}: {error}"
            ) from error
    elif isinstance(returned, Tensor):
        found = returned
    elif isinstance(returned, Mapping):
        found = returned.get("logits")
    else:
        found = getattr(returned, "logits", None)
    if isinstance(found, Tensor):
        return found
    raise ModelError(_wanted("N", type(returned if output is None else found).__name__))


def check_logits(logits: Tensor, images: int) -> Tensor:
    """Logits of that many images, two or more each, or an error."""
    if logits.ndim == 2 and len(logits) == images and logits.shape[1] >= 2:
        return logits
    raise ModelError(_wanted(str(images), str(tuple(logits.shape))))


def required(input_gradient: Tensor | None) -> Tensor:
    """The gradient, or an error where autograd found none."""
    if input_gradient is None:
        raise ModelError(
            "The loss does not depend on the images through autograd: remove what detaches it in the model, such as "
            "torch.no_grad(), .detach() or .data."
        )
    return input_gradient


def _wanted(images: str, got: str) -> str:
    return (
        f"The model must return logits of shape ({images}, classes) for {images} images, with two or more classes; got "
        f"{got}: pass output=, a function from what it returns to logits, to Classifier, regularized_loss, "
        "GradientPenalty or fit."
    )
