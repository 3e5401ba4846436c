"""One update of the weights, and everything that an update changes."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gradreg.calling.targets import Target, at
from gradreg.errors import ConfigError, GradregError, ModelError, RunError, words_of
from gradreg.losses import cross_entropy
from gradreg.objectives.base import Draws, Moment, Outcome, smoothed_cross_entropy
from gradreg.penalty.devices import same_device
from gradreg.processes import Processes
from gradreg.runs.settings import Settings
from gradreg.runs.weights import load_weights
from gradreg.training.average import Average
from gradreg.training.measure import Measure
from gradreg.training.optimizers import Optimizers
from gradreg.training.sources import reseed

_ELSEWHERE = "resume it with the model that it was started with"
# Of every step, whatever the objective.
_ALWAYS_LOGGED = ("loss", "train_accuracy", "not_finite")


class Learner:
    """A network, its optimizer and its moving average, with sums of the scalars that the steps of an epoch logged."""

    def __init__(
        self, model: nn.Module, settings: Settings, processes: Processes, measure: Measure | None = None
    ) -> None:
        self.model, self.settings, self.processes = model, settings, processes
        self.wrapped_model = _wrapped(model, settings, processes)
        self.optimizers = Optimizers(settings.optimizer, model)
        self.average = Average(model, settings.ema) if settings.ema else None
        self.measure = measure or Measure()
        own = self.measure.criterion is not cross_entropy
        self.criterion = self.measure.criterion if own else smoothed_cross_entropy(settings.label_smoothing)
        self.sums: dict[str, Tensor] = {}
        self.memory: dict[str, Tensor] = {}
        """What the objective keeps from one step for the next."""

    @property
    def eval_model(self) -> nn.Module:
        """The network that is evaluated and saved: the moving average, if there is one."""
        return self.average.model if self.average else self.model

    def step(self, x: Tensor, y: Target, key: tuple[int, ...], number: int, epoch: float, factor: float) -> Outcome:
        """Update number `number`, `epoch` epochs into training, at `factor` times the learning rate.

        All random draws depend on `key` alone, so no generator state has to be saved.
        """
        settings = self.settings
        reseed(*key, self.processes.rank)
        for part, (images, labels, draws) in enumerate(self._micro_batches(x, y, key)):
            moment = Moment(number, epoch, draws, self.criterion, self.measure.output, self.memory)
            with self._gradient_sync(part == settings.accumulate - 1):
                low = torch.autocast(x.device.type, torch.bfloat16, enabled=settings.amp == "bf16")
                with low, same_device(self.model, images, labels), self._naming_failures(images):
                    outcome = settings.objective(self.wrapped_model, images, labels, moment)
                outcome.backward()
            self._log(outcome, labels if outcome.targets is None else outcome.targets)
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        if settings.accumulate > 1:
            for gradient in gradients:
                gradient.div_(settings.accumulate)
        if settings.clip_norm is not None:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
            self._add_scalars({"clipped": (norm > settings.clip_norm).float()})
        self.optimizers.step(factor)
        self.processes.average([*self.model.buffers(), *self._joint_memory.values()])
        if self.average:
            self.average.update(self.model, number + 1)
        return outcome

    @property
    def nonfinite_losses(self) -> Tensor:
        """How many losses of this epoch were infinite or NaN; a tensor, so that the device is not waited for."""
        return self.sums["not_finite"]

    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        return all(bool(weight.isfinite().all()) for weight in self.model.parameters())

    def means(self) -> dict[str, float]:
        """Means of the logged scalars over the steps of all processes; NaN for a scalar that no step measured."""
        found = {}
        for name, pair in self.sums.items():
            if name != "not_finite":
                total, count = self.processes.sum(pair.clone()).tolist()
                found[name] = total / count if count else float("nan")
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the next step depends on."""
        groups = {"model": self.model.state_dict(), "optimizer": self.optimizers.state(), "sums": self.sums}
        groups["memory"] = self.memory if self.processes.world == 1 else self._joint_memory
        if self.average:
            groups["average"] = self.average.model.state_dict()
        return {f"{group}/{name}": tensor for group, found in groups.items() for name, tensor in found.items()}

    def load(self, tensors: Mapping[str, Tensor], steps: int, batches: int, *, counted: bool = True) -> None:
        """Restore what `tensors` returned after that many steps, and that many batches of the epoch.

        `counted`: their number is known to be right.
        """
        groups: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "sums": {}, "memory": {}}
        if self.average:
            groups["average"] = {}
        for path, tensor in tensors.items():
            group, _, name = path.partition("/")
            if group not in groups:
                raise RunError(f"It holds {path!r}, which is no part of this run's checkpoints.")
            groups[group][name] = tensor
        for name, sums in groups["sums"].items():
            if not sums.is_floating_point() or sums.shape != (() if name == "not_finite" else (2,)):
                raise RunError(f"sums/{name} must be a sum and a count; got shape {tuple(sums.shape)}.")
        if batches and (missing := [name for name in _ALWAYS_LOGGED if name not in groups["sums"]]):
            raise RunError(f"sums/{missing[0]} of the {batches} batches of its epoch is missing.")
        load_weights(self.model, groups["model"], "The model in it", _ELSEWHERE)
        self.optimizers.load(groups["optimizer"], steps, counted=counted)
        device = self.processes.device
        self.sums = {name: tensor.to(device) for name, tensor in groups["sums"].items()}
        self.memory = {name: tensor.to(device) for name, tensor in groups["memory"].items()}
        if self.average:
            load_weights(self.average.model, groups["average"], "The averaged model in it", _ELSEWHERE)

    @property
    def _joint_memory(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.memory.items() if not name.startswith("own")}

    def _micro_batches(self, x: Tensor, y: Target, key: tuple[int, ...]) -> Iterator[tuple[Tensor, Target, Draws]]:
        parts, size = self.settings.accumulate, len(x)
        if size % parts:
            raise ConfigError(
                f"The batch size must be divisible by accumulate = {parts}; got a batch of {size} images."
            )
        joint, first, each = size * self.processes.world, size * self.processes.rank, size // parts
        for begin in range(0, size, each):
            part = slice(begin, begin + each)
            yield x[part], at(y, part), Draws(key, joint, slice(first + begin, first + begin + each))

    def _gradient_sync(self, enabled: bool) -> AbstractContextManager[object]:
        if enabled or not isinstance(self.wrapped_model, DistributedDataParallel):
            return nullcontext()
        return self.wrapped_model.no_sync()

    @contextmanager
    def _naming_failures(self, x: Tensor) -> Iterator[None]:
        """Inside, whatever the model raises becomes a ModelError; what an objective of a user's raises stays."""
        try:
            yield
        except (GradregError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            # What several processes and deterministic algorithms say is told in their own words further up.
            elsewhere = self.processes.world > 1 or self.settings.deterministic
            frames = walk_tb(error.__traceback__)
            of_model = any(frame.f_locals.get("self") is self.wrapped_model for frame, _ in frames)
            if not of_model or (elsewhere and isinstance(error, RuntimeError)):
                raise
            raise ModelError(f"The model failed on images of shape {tuple(x.shape)}: {words_of(error)}") from error

    def _log(self, outcome: Outcome, y: Target) -> None:
        correct = self.measure.accuracy(outcome.logits, y)
        self._add_scalars({"loss": outcome.loss.detach(), "train_accuracy": correct, **outcome.scalars})
        bad = (~outcome.loss.detach().isfinite()).float()
        self.sums["not_finite"] = self.sums.get("not_finite", torch.zeros_like(bad)) + bad

    def _add_scalars(self, scalars: Mapping[str, Tensor]) -> None:
        """Add to sums and counts, on the device; NaN, for a scalar not measured in this step, is not counted."""
        for name, value in scalars.items():
            pair = torch.stack([value.float().nan_to_num(0.0), (~value.isnan()).float()])
            self.sums[name] = self.sums[name] + pair if name in self.sums else pair


def _wrapped(model: nn.Module, settings: Settings, processes: Processes) -> nn.Module:
    """The network as a step calls it: compiled and in DistributedDataParallel, if the settings and processes say so."""
    called: nn.Module = torch.compile(model) if settings.compile else model  # type: ignore[assignment]
    if processes.world == 1:
        return called
    # Processes.average synchronizes buffers instead. The option was renamed in torch 2.13.
    renamed = "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    option: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
    return DistributedDataParallel(called, **option)
