"""Batches of images, labels, and one number per image.

Shapes and types are checked always. Values are looked at only where that is free, on the host: on an accelerator every
look would make the step wait.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.checks.scalars import check_integer, check_number, shown
from gradreg.errors import ConfigError, DataError, GradregError, warn


def check_batch(x: Any, name: str = "x") -> Tensor:
    """`x` as a float batch of at least one image, (N, …)."""
    if not isinstance(x, Tensor):
        raise DataError(f"{name} must be a float tensor of shape (N, …); got {shown(x)}.")
    if x.is_meta:
        raise DataError(f"{name} must hold pixels; got a tensor on the meta device, which has none.")
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        raise DataError(f"{name} must be a plain tensor; got one of torch.func (vmap, grad, jvp): call this outside.")
    check_layout(name, x)
    if x.numel() == 0:
        raise DataError(f"{name} must hold one image or more; got an empty batch of shape {tuple(x.shape)}.")
    if x.ndim < 2 or not x.is_floating_point():
        raise DataError(f"{name} must be a float batch of shape (N, …); got {x.dtype} of shape {tuple(x.shape)}.")
    check_width(name, x)
    return plain(x).resolve_neg()


def plain(tensor: Tensor) -> Tensor:
    """The same values without a class that libraries of images give them: two such classes do not go together.

    A class that holds its values otherwise, such as a distributed tensor's, says so by a dispatch of its own and stays.
    """
    kind: Any = type(tensor)
    if kind is Tensor or kind is nn.Parameter or kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        return tensor
    return tensor.as_subclass(Tensor)


def check_dense(name: str, value: Tensor, error: type[GradregError] = DataError) -> None:
    """Refuse a tensor whose values are not one beside the other, or not there."""
    check_layout(name, value, error)
    if value.is_meta:
        raise error(f"{name} must hold values; got a tensor on the meta device, which has none.")


def check_layout(name: str, value: Tensor, error: type[GradregError] = DataError) -> None:
    """Refuse a sparse or nested tensor, or one in the memory format of a library."""
    if value.is_nested or value.layout != torch.strided:
        raise error(f"{name} must be a dense tensor; got {'a nested one' if value.is_nested else value.layout}.")


def check_rows(name: str, value: Tensor) -> Tensor:
    """A dense tensor whose first axis counts images, before it is cut to some of them."""
    check_dense(name, value)
    if value.ndim == 0:
        raise DataError(f"{name} must have one row per image; got one number, {value.dtype} of shape ().")
    return value


def check_width(name: str, value: Tensor, error: type[GradregError] = DataError) -> None:
    """Refuse floats of 8 bits or less, which torch stores and hardly computes with."""
    if value.is_floating_point() and value.element_size() == 1:
        raise error(f"{name} must be floats of 16 bits or more; got {value.dtype}: cast them, as by .float().")


def check_labels(y: Any, images: int, name: str = "y", *, look: bool = True) -> Tensor:
    """`y` as int64 labels, one per image; any type of integer will do. On the host, negative ones are refused too."""
    if not isinstance(y, Tensor):
        raise DataError(f"{name} must be a tensor of {images} integer labels; got {shown(y)}.")
    check_dense(name, y)
    if y.shape != (images,) or not _integral(y):
        raise DataError(f"{name} must hold {images} integer labels; got {y.dtype} of shape {tuple(y.shape)}.")
    labels: Tensor = plain(y).long()
    if labels.is_inference() and not torch.is_inference_mode_enabled():
        labels = labels.clone()  # autograd refuses to keep those of inference mode
    if look and images and on_host(labels) and (low := int(labels.min())) < 0:
        raise DataError(f"{name} must hold labels from 0 to the number of classes less 1; got {low} among them.")
    return labels


def check_device(name: str, value: Tensor, x: Tensor) -> None:
    """Refuse a tensor that is not where the images are; nothing that is passed directly is moved."""
    if value.device != x.device:
        raise DataError(f"{name} must be on the device of x, {x.device}; got {value.device}. Move one of them.")


def check_classes(y: Tensor, classes: int, name: str = "y") -> None:
    """Refuse labels outside of the classes, −100 included: an ignored image would count as one without a loss."""
    low, high = torch.stack(y.aminmax()).tolist()
    if low < 0 or high >= classes:
        raise DataError(f"{name} must hold labels from 0 to {classes - 1}, the model's classes; got {low} to {high}.")


def check_per_image(name: str, value: Any, images: int, **limits: Any) -> float | Tensor:
    """One number for all images, or a float tensor with one for each; on the host each is checked."""
    if not isinstance(value, Tensor) or (value.ndim == 0 and on_host(value)):
        return check_number(name, value, **limits)
    check_dense(name, value, ConfigError)
    check_width(name, value, ConfigError)
    if value.shape not in ((), (images,)) or not value.is_floating_point():
        raise ConfigError(
            f"{name} must be one number, or one per image for all {images} images; got {value.dtype} of shape "
            f"{tuple(value.shape)}."
        )
    if on_host(value):
        for end in value.detach().aminmax():
            check_number(name, end.item(), **limits)
    return value


def check_column(name: str, value: Any, images: int | None = None, *, least: float | None = None) -> Tensor:
    """A tensor of numbers, one per image, none of them NaN or below `least`; infinite ones are allowed."""
    if isinstance(value, Tensor):
        check_dense(name, value)
        check_width(name, value)
    if not isinstance(value, Tensor) or value.ndim != 1 or value.is_complex() or value.dtype == torch.bool:
        raise DataError(f"{name} must be a tensor with one number per image; got {shown(value)}.")
    if images is not None and len(value) != images:
        raise DataError(f"{name} must have one entry per image, {images}; got {len(value)}.")
    if bool(value.isnan().any()) or (least is not None and bool((value < least).any())):
        limit = "no NaN" if least is None else f"numbers of at least {least:g}"
        raise DataError(f"{name} must hold {limit}; got some that are negative or NaN.")
    return value


def check_positions(name: str, value: Any, images: int) -> Tensor:
    """Positions of images, from 0 to `images` − 1, as an int64 tensor; or a mask of them."""
    if isinstance(value, Tensor):
        check_dense(name, value)
    if isinstance(value, Tensor) and value.dtype == torch.bool and value.shape == (images,):
        return value.nonzero().flatten()
    if not isinstance(value, Tensor) or value.ndim != 1 or not _integral(value):
        raise DataError(f"{name} must be a tensor of positions among {images} images; got {shown(value)}.")
    if len(value) and (int(value.min()) < 0 or int(value.max()) >= images):
        low, high = int(value.min()), int(value.max())
        raise DataError(f"{name} must be positions from 0 to {images - 1}; got some from {low} to {high}.")
    return value.long()


def check_index(name: str, value: Any, images: int) -> Tensor:
    """Positions of images as an int64 tensor, of a slice, a list of whole numbers, an array or a tensor."""
    if isinstance(value, slice):
        return torch.arange(images, device="cpu")[value]
    if isinstance(value, list | tuple | range):
        value = torch.tensor([check_integer(name, each) for each in value], dtype=torch.int64, device="cpu")
    return check_positions(name, value if isinstance(value, Tensor) else _as_tensor(value), images)


def _as_tensor(value: Any) -> Any:
    """An array of NumPy's as a tensor; anything else as it is."""
    return torch.as_tensor(value, device="cpu") if type(value).__module__ == "numpy" and value.ndim == 1 else value


def on_host(tensor: Tensor) -> bool:
    """Whether looking at values costs nothing: not on an accelerator, and not while a step is being compiled."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def check_pixels(x: Tensor, name: str = "x") -> None:
    """Refuse pixels that are not finite, and whole numbers up to 255: images that were never divided by 255.

    Anything else passes, since a user may normalise outside of the model. Pixels on an accelerator are not looked at.
    """
    if not on_host(x):
        return
    low, high = (float(end) for end in x.detach().aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise DataError(f"{name} must hold finite pixels; got NaN or inf in some of its {len(x)} images.")
    if low >= 0 and NORMALISED < high <= 255 and bool((x == x.round()).all()):
        raise DataError(
            f"{name} must hold pixels in [0, 1], or normalised; got whole numbers from {low:g} to {high:g}. Divide "
            "them by 255, and let a model that needs 0 to 255 multiply inside: h and eps are in units of [0, 1]."
        )
    if max(-low, high) > NORMALISED:
        warn(
            f"Pixels run from {low:.3g} to {high:.3g}, while h and eps are lengths in units of [0, 1]: check that they "
            "are meant for such pixels."
        )


def check_scores(logits: Any, name: str = "logits") -> Tensor:
    """`logits` as a float tensor of shape (N, classes), with two or more classes."""
    if isinstance(logits, Tensor):
        check_dense(name, logits)
        check_width(name, logits)
    if not isinstance(logits, Tensor) or not logits.is_floating_point() or logits.ndim != 2 or logits.shape[1] < 2:
        raise DataError(f"{name} must be a float tensor of shape (N, classes ≥ 2); got {shown(logits)}.")
    return logits


# No normalisation leads here: (1 − mean) / std is below 8 for the usual data sets.
NORMALISED = 50.0


def _integral(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
