"""Asking a model: its input is not written to, and what it returns is read as logits or refused in one sentence."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import torch
from torch import Tensor

from gradreg.checks.objects import Must
from gradreg.checks.tensors import plain
from gradreg.defaults import callers_default
from gradreg.errors import ModelError, words_of
from gradreg.precision import at_least_single

MODEL = Must("an nn.Module or a function from images to logits", ModelError)
Model = Annotated[Callable[[Tensor], Any], MODEL]
"""From a batch to logits, to an object with `.logits`, to a mapping with "logits"; anything else needs an `Output`."""
OUTPUT = Must("a function from what the model returns to logits")
Output = Annotated[Callable[[Any], Tensor], OUTPUT]
"""From whatever a model returns to logits."""

# A row whose sum differs from 1 by less than this many units of rounding is taken for probabilities.
_ROUNDING = 32


def answer(model: Model, x: Tensor, output: Output | None = None) -> Tensor:
    """The model's logits for `x`, on a copy: a model may write into its input.

    An `x` with a gradient must be a copy already, as of `leaf`, since under no_grad and through `.data` a model can
    write into a leaf too. It is copied once more only where autograd refuses the write: compiled models warn of an
    input that is not a leaf. What a model returns without a gradient may be memory that its next answer overwrites, or
    a tensor of inference mode, which autograd cannot use: it is copied too. So is a leaf, such as the images, since a
    criterion may write into logits.
    """
    # The model may switch gradients off and leave them so.
    with torch.set_grad_enabled(torch.is_grad_enabled()), callers_default():
        logits = read(_returned(model, x), output)
    if logits.element_size() == 1 or (logits.is_meta and not x.is_meta):
        kind = "on the meta device, which have no values" if logits.is_meta else f"of {logits.dtype}"
        raise ModelError(f"The model must return logits that can be computed with; got logits {kind}.")
    return logits if logits.requires_grad and not _of_a_leaf(logits) else logits.clone()


def leaf(x: Tensor) -> Tensor:
    """A copy of the images that a gradient can be taken at, which a model may write into."""
    return x.detach().clone().requires_grad_()


def _of_a_leaf(logits: Tensor) -> bool:
    return logits.is_leaf or (logits._base is not None and logits._base.is_leaf)


def _returned(model: Model, x: Tensor) -> object:
    if not x.requires_grad:
        return model(x.clone())
    try:
        return model(x)
    except RuntimeError as error:
        if "in-place operation" not in str(error):
            raise
    return model(x.clone())


def read(returned: object, output: Output | None = None) -> Tensor:
    """The tensor of logits in what a model returned."""
    if output is not None:
        try:
            found: object = output(returned)
        except Exception as error:
            raise ModelError(
                f"output= failed on what the model returned, a {type(returned).__name__}: {words_of(error)}"
            ) from error
    elif isinstance(returned, Tensor):
        found = returned
    elif isinstance(returned, Mapping):
        found = returned.get("logits")
    else:
        found = _logits_of(returned)
    if not isinstance(found, Tensor):
        raise ModelError(_wanted("N", type(returned if output is None else found).__name__))
    layout = "nested" if found.is_nested else found.layout
    if not found.is_floating_point() or layout != torch.strided:
        raise ModelError(_wanted("N", f"{found.dtype}, {layout}".removesuffix(", torch.strided")))
    return plain(found)


def _logits_of(returned: object) -> object:
    """An attribute may be computed when it is read, and fail."""
    try:
        return getattr(returned, "logits", None)
    except Exception as error:
        raise ModelError(
            f"Reading .logits of what the model returned, a {type(returned).__name__}, failed: {words_of(error)}"
        ) from error


def check_logits(logits: Tensor, images: int) -> Tensor:
    """Logits of that many images, two or more each, or an error."""
    if logits.ndim == 2 and len(logits) == images and logits.shape[1] >= 2:
        return logits
    raise ModelError(_wanted(str(images), str(tuple(logits.shape))))


def check_values(logits: Tensor) -> None:
    """Refuse logits that are not finite, and probabilities in their place, by one look at the device."""
    finite = logits.isfinite().all(1)
    scores = logits.to(at_least_single(logits.dtype))
    looks_like_one = (scores >= 0).all(1) & ((scores.sum(1) - 1).abs() < _ROUNDING * torch.finfo(logits.dtype).eps)
    all_finite, all_probabilities = torch.stack([finite, looks_like_one]).all(1).tolist()
    if not all_finite:
        first = int((~finite).nonzero()[0])
        raise ModelError(
            f"The model's logits are not finite for {int((~finite).sum())} images; the first is image {first}."
        )
    if all_probabilities:
        raise ModelError(
            "The model returns probabilities. Their gradients vanish where it is confident, so attacks would fail and "
            "the model would look robust: return the logits, without the softmax at the end."
        )


def required(input_gradient: Tensor | None) -> Tensor:
    """The gradient, or an error where autograd found none."""
    if input_gradient is None and torch.is_inference_mode_enabled():
        raise ModelError(
            "Nothing has a gradient under torch.inference_mode(): call this outside of it; torch.no_grad() is fine."
        )
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
