"""A model that is evaluated, not trained: left as it was found, in the precision that it takes, its failures named."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradreg.calling.answers import Model
from gradreg.calling.contents import contents, in_train_mode
from gradreg.calling.known import Known
from gradreg.calling.state import State
from gradreg.calling.values import changed
from gradreg.errors import GradregError, ModelError, words_of


def unknown() -> Known:
    """Nothing is known of the model yet. Streams are not put back: what is randomised is to show."""
    known = Known()
    known.draws = False
    return known


@contextmanager
def left_as_found(model: Model, device: torch.device, known: Known) -> Iterator[None]:
    """In eval mode, put back the buffers and tensors that a forward moves: every answer is of the model as given.

    Which these are is found out by the first forward, so that a model that moves nothing costs nothing.
    """
    if known.moving == ():
        yield
        return
    if in_train_mode(model):
        yield
        return
    state = State(contents(model)[0], (), known, owners=[model], evaluated=True)
    with state.replaced(state.now(device)):
        yield


@contextmanager
def named(x: Tensor) -> Iterator[None]:
    """Inside, whatever the model raises becomes a ModelError; a lack of memory stays what it is."""
    try:
        yield
    except (GradregError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ModelError(f"The model failed on images of shape {tuple(x.shape)}: {words_of(error)}") from error


def first_float(model: Model) -> Tensor | None:
    """The first weight or buffer that says which device a model is on; None for a function."""
    if not isinstance(model, nn.Module):
        return None
    tensors = (tensor for group in (model.parameters(), model.buffers()) for tensor in group)
    return next((tensor for tensor in tensors if tensor.is_floating_point()), None)


def precision(model: Model) -> torch.dtype | None:
    """The dtype that pixels are cast to: that of the weights, if they have one in common."""
    weight = first_float(model)
    if weight is None or not isinstance(model, nn.Module):
        return None
    kinds = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return weight.dtype if len(kinds) < 2 else None


def marks(model: Model) -> list[tuple[int, int]]:
    """What changes when weights are written to or replaced, without a look at their values."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    return [(0 if parameter.is_inference() else parameter._version, _address(parameter)) for parameter in parameters]


def check_settled(model: Model, ask: Callable[[], object]) -> None:
    """Refuse a model whose weights change when it is asked; renormalising them to what they are is no change."""
    assert isinstance(model, nn.Module)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    ask()
    if any(changed([(old, new.detach()) for old, new in zip(before, model.parameters(), strict=True)])):
        raise ModelError(
            "The model changes its own weights when it is asked, so that its answers depend on what it was asked "
            "before: switch off its adaptation at test time."
        )


def _address(parameter: Tensor) -> int:
    try:
        return parameter.data_ptr()
    except RuntimeError:  # a tensor without storage of its own
        return 0


def check_weights(model: Model, *, lazy: bool = False) -> None:
    """Refuse weights and buffers that have no values yet; with `lazy`, those may that the first batch gives some."""
    for module in contents(model)[0]:
        kind = type(module).__name__
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and is_lazy(tensor) and not lazy:
                raise ModelError(
                    f"The model has weights without a shape ({kind}): pass a batch of images through it first."
                )
            if tensor is not None and tensor.is_meta:
                raise ModelError(
                    f"The model has {name!r} ({kind}) on the meta device, where tensors have no values: load them "
                    "first."
                )
