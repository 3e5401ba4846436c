"""Synchronized batch normalisation, by the statistics of the joint batch of all processes, on any device.

torch's SyncBatchNorm supports accelerators only. Here it is plain arithmetic around two sums over the processes. The
gradient at an image includes its effect on the losses of other processes' images, as in one process with the joint
batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gradreg.precision import at_least_single


@contextmanager
def joint_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, the batch normalisations of `model` use the statistics of all processes; they are restored afterwards."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    for layer in layers:
        # The layers keep their classes, so that the model can be saved and loaded without gradreg.
        layer.forward = MethodType(_forward, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


class _Sum(torch.autograd.Function):
    """Σ over the processes. All their losses depend on it, so its derivative is the sum over the processes too."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _summed(gradients[0])


def _summed(values: Tensor) -> Tensor:
    total: Tensor = _Sum.apply(values)  # type: ignore[no-untyped-call]
    return total


def _forward(layer: _BatchNorm, x: Tensor) -> Tensor:
    if not layer.training or not dist.is_initialized():
        return type(layer).forward(layer, x)
    layer._check_input_dim(x)
    exact = x.to(at_least_single(x.dtype))
    axes, shape = (0, *range(2, x.ndim)), (1, -1, *(1 for _ in range(2, x.ndim)))
    here = exact.new_tensor([x.numel() / x.shape[1]])
    sums = _summed(torch.cat([exact.sum(axes), here]))
    n = sums[-1].detach()
    mean = sums[:-1] / n
    centred = exact - mean.view(shape)
    # A second sum, since E[x²] − E[x]² loses digits that a single process keeps.
    variance = _summed(centred.square().sum(axes)) / n
    if layer.track_running_stats:
        _update_running_statistics(layer, mean.detach(), (variance * n / (n - 1)).detach())
    y: Tensor = centred * torch.rsqrt(variance + layer.eps).view(shape)
    if layer.affine:
        y = y * layer.weight.view(shape) + layer.bias.view(shape)
    return y.to(x.dtype)


def _update_running_statistics(layer: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics towards those of the batch; without momentum they are cumulative means."""
    if layer.running_mean is None or layer.running_var is None or layer.num_batches_tracked is None:
        return
    layer.num_batches_tracked.add_(1)
    weight_of_batch = 1 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum
    with torch.no_grad():
        layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), weight_of_batch)
        layer.running_var.lerp_(variance.to(layer.running_var.dtype), weight_of_batch)
