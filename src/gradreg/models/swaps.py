"""Layers with kinks replaced by smooth ones, in any model, and what is left of kinks after that.

The penalty trains a derivative of the network. Where that derivative jumps, as a ReLU's and a maximum's do, it can fall
by moving jumps instead of slopes, and finite differences over h and bounds on curvature do not mean what they say.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from gradreg.calling.answers import Model
from gradreg.checks.calls import validated
from gradreg.checks.tensors import check_batch
from gradreg.errors import ModelError
from gradreg.models.activations import activation as activation_named

_RECTIFIERS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.Threshold, nn.Hardswish)
# Gates and clips: their values are bounded, and have to stay so.
_BOUNDED: dict[type[nn.Module], type[nn.Module]] = {nn.Hardsigmoid: nn.Sigmoid, nn.Hardtanh: nn.Tanh}
_ADAPTIVE: dict[type[nn.Module], type[nn.Module]] = {
    nn.AdaptiveMaxPool1d: nn.AdaptiveAvgPool1d,
    nn.AdaptiveMaxPool2d: nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool3d: nn.AdaptiveAvgPool3d,
}
_AVERAGES: dict[type[nn.Module], type[nn.Module]] = {
    nn.MaxPool1d: nn.AvgPool1d,
    nn.MaxPool2d: nn.AvgPool2d,
    nn.MaxPool3d: nn.AvgPool3d,
}
# torch's own operations that have kinks; of abs, clamp and maximum many are harmless, so they are not counted.
_OPERATIONS = (
    "relu", "leaky_relu", "prelu", "rrelu", "threshold", "hardtanh", "hardswish", "hardsigmoid", "max_pool", "relu6",
)  # fmt: skip


def swap_activations(model: nn.Module, name: str = "gelu") -> nn.Module:
    """Replace every activation layer that has a kink (ReLU, LeakyReLU, Hardswish, …) by the one of that name.

    Bounded ones, which are gates, become the smooth gate: Hardsigmoid a sigmoid, Hardtanh a tanh. The model is changed
    in place and returned. Functions called in a forward, such as `F.relu`, are no layers: `kinks` shows what is left.
    Weights stay as they are, but a trained model answers differently, so train it on.
    """
    named = activation_named(name)

    def smooth(layer: nn.Module) -> nn.Module:
        return named() if isinstance(layer, _RECTIFIERS) else _BOUNDED[type(layer)]()

    return _replaced(model, (*_RECTIFIERS, *_BOUNDED), smooth, f"activation layer with a kink for {name!r} to replace")


def swap_pooling(model: nn.Module) -> nn.Module:
    """Replace every max pooling layer by average pooling over the same windows, in place."""
    return _replaced(model, (*_AVERAGES, *_ADAPTIVE), _average, "max pooling layer to replace")


@validated
def kinks(model: Model, x: Tensor) -> dict[str, int]:
    """Which operations with kinks one forward of `x` goes through, and how often, layers or not."""
    check_batch(x)
    with _Counting() as counting, torch.no_grad():
        model(x)
    return dict(sorted(counting.found.items()))


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.removesuffix("_")
        if name.startswith(_OPERATIONS) and not name.endswith("backward"):
            self.found[name] += 1
        return func(*args, **(kwargs or {}))


def _replaced(
    model: nn.Module, kinds: tuple[type[nn.Module], ...], fresh: Callable[[nn.Module], nn.Module], what: str
) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise ModelError(f"model must be an nn.Module, whose layers can be replaced; got {type(model).__name__}.")
    if isinstance(model, kinds):
        return fresh(model).train(model.training)
    paths = [path for path, layer in model.named_modules(remove_duplicate=False) if isinstance(layer, kinds)]
    if not paths:
        raise ModelError(
            f"The model has no {what}: leave it out, or change what its forward calls, such as F.relu, in its code."
        )
    made: dict[nn.Module, nn.Module] = {}
    for path in paths:
        layer = model.get_submodule(path)
        if layer not in made:  # one that stands in two places stays one
            made[layer] = fresh(layer).train(layer.training)
    for path in paths:
        model.set_submodule(path, made[model.get_submodule(path)])
    return model


def _average(layer: Any) -> nn.Module:
    if getattr(layer, "return_indices", False):
        raise ModelError(f"{layer} hands out where its maxima are, which an average does not have: leave it as it is.")
    if type(layer) in _ADAPTIVE:
        return _ADAPTIVE[type(layer)](layer.output_size)
    if any(step != 1 for step in _numbers(layer.dilation)):
        raise ModelError(f"{layer} has a dilation, which average pooling does not have: leave it as it is.")
    windows = layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode
    return _AVERAGES[type(layer)](*windows, count_include_pad=False)


def _numbers(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)
