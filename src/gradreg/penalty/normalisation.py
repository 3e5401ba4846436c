"""Layers that normalise by statistics, of the batch or running ones, and their mode in a penalty step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from gradreg.calling.answers import Model
from gradreg.checks.scalars import shown
from gradreg.errors import ConfigError

BatchNormMode = Literal["train", "frozen"]


def check_batch_norm_mode(model: Model, mode: BatchNormMode) -> None:
    """Raise an error for an unknown mode, or one that the model does not allow."""
    if not isinstance(mode, str) or mode not in ("train", "frozen"):
        raise ConfigError(f"bn must be 'train' (batch statistics) or 'frozen' (running statistics); got {shown(mode)}.")
    if mode == "frozen" and not isinstance(model, nn.Module):
        raise ConfigError(
            "bn='frozen' switches the model's BatchNorm layers, which a plain function does not expose: pass the "
            "nn.Module itself."
        )


def layers_with_statistics(modules: Sequence[nn.Module]) -> list[nn.Module]:
    """In train mode: those of batch statistics, and those that keep running ones of each image's own."""
    return [
        layer
        for layer in modules
        if isinstance(layer, _NormBase)
        and layer.training
        and (isinstance(layer, _BatchNorm) or layer.running_mean is not None)
    ]


def take_the_batch_s(layers: Sequence[nn.Module]) -> bool:
    """Whether images move each other's losses by them."""
    return any(isinstance(layer, _BatchNorm) for layer in layers)


@contextmanager
def in_eval_mode(layers: Sequence[nn.Module]) -> Iterator[None]:
    """In eval mode, and back."""
    for layer in layers:
        layer.training = False
    try:
        yield
    finally:
        for layer in layers:
            layer.training = True
