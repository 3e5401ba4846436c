"""Your own code during `fit`: what it is called with, and how it ends training early."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from gradreg.checks.objects import check_several
from gradreg.checks.scalars import shown
from gradreg.defaults import callers_default
from gradreg.errors import ConfigError


class _Stop:
    """A request to end training."""

    def __init__(self) -> None:
        self.asked = False


@dataclass(frozen=True)
class StepEnd:
    """An update of the weights has been made; called in every process, with this process's share of the batch.

    Tensors lie on the device: `loss.item()` waits for it.
    """

    step: int
    """Updates so far, this one included."""
    epoch: int
    """The epoch that is being trained, from 1."""
    lr: float
    loss: Tensor
    scalars: Mapping[str, Tensor]
    """What the objective logs, such as `penalty`; NaN where this step did not measure it."""
    model: nn.Module
    """The network in training, in train mode."""
    _stop: _Stop = field(default_factory=_Stop, repr=False)

    def stop(self) -> None:
        """End training with this epoch, as if it were the last."""
        self._stop.asked = True


@dataclass(frozen=True)
class EpochEnd:
    """An epoch is over and saved; called in every process."""

    step: int
    epoch: int
    """The number of finished epochs."""
    metrics: Mapping[str, Any]
    """The line of metrics.jsonl."""
    model: nn.Module
    """The network that was evaluated and saved (the moving average, with `ema`), in eval mode."""
    _stop: _Stop = field(default_factory=_Stop, repr=False)

    def stop(self) -> None:
        """End training here, as if this epoch were the last."""
        self._stop.asked = True


OnStep = Callable[[StepEnd], None]
OnEpoch = Callable[[EpochEnd], None]


class Callbacks:
    """The functions to call after steps and epochs, and whether one of them asked to stop."""

    def __init__(self, on_step: Iterable[OnStep] = (), on_epoch: Iterable[OnEpoch] = ()) -> None:
        self._on_step, self._on_epoch = list(on_step), list(on_epoch)
        self._stop = _Stop()

    @property
    def asked_to_stop(self) -> bool:
        """Whether training is to end with this epoch."""
        return self._stop.asked

    @property
    def sees_steps(self) -> bool:
        """Whether anybody is called after a step."""
        return bool(self._on_step)

    def step(
        self, step: int, epoch: int, lr: float, loss: Tensor, scalars: Mapping[str, Tensor], model: nn.Module
    ) -> None:
        """An update has been made."""
        at = StepEnd(step, epoch, lr, loss.detach(), dict(scalars), model, self._stop)
        for function in self._on_step:
            with _undisturbed(model):
                function(at)

    def epoch(self, step: int, epoch: int, metrics: Mapping[str, Any], evaluated: nn.Module, model: nn.Module) -> None:
        """An epoch has been saved; `model` is in training, and `evaluated` perhaps its average."""
        at = EpochEnd(step, epoch, dict(metrics), evaluated, self._stop)
        for function in self._on_epoch:
            with _undisturbed(model), _undisturbed(evaluated):
                evaluated.eval()
                function(at)


def callbacks_of(callbacks: object, on_step: object, on_epoch: object) -> Callbacks:
    """What `fit` was given: objects with a method `on_step`, `on_epoch` or both, and plain functions."""
    objects = check_several("callbacks", callbacks, "a sequence of objects")
    for each in objects:
        if not any(callable(getattr(each, name, None)) for name in ("on_step", "on_epoch")):
            raise ConfigError(
                f"A callback must have a method on_step or on_epoch; got {shown(each)}. Pass a function as "
                "on_step= or on_epoch=."
            )
    return Callbacks(_functions("on_step", on_step, objects), _functions("on_epoch", on_epoch, objects))


def _functions(name: Literal["on_step", "on_epoch"], own: object, objects: Iterable[object]) -> list[Any]:
    if own is not None and not callable(own):
        raise ConfigError(f"{name} must be a function; got {shown(own)}.")
    found = [] if own is None else [own]
    return found + [getattr(each, name) for each in objects if callable(getattr(each, name, None))]


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """A callback may put the network into another mode and leave gradients behind; training does not notice."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        with callers_default():
            yield
    finally:
        for module, training in modes:
            module.training = training
        for weight in model.parameters():
            weight.grad = None
