"""The settings of a run, as frozen dataclasses that are checked before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gradreg.checks.scalars import require
from gradreg.norms import ThreatName, threat
from gradreg.objectives import OBJECTIVES, Objective, Undefended
from gradreg.runs.optimizers import OPTIMIZERS, SGD
from gradreg.runs.optimizers import Settings as OptimizerSettings
from gradreg.runs.schedules import SCHEDULES, OneCycle, Schedule


@dataclass(frozen=True)
class Probe:
    """The cheap attack that measures robust accuracy on held-out images after every epoch: PGD from a random start."""

    threat: ThreatName
    eps: float
    steps: int = 10
    images: int = 500
    """At most this many of the held-out images, the first ones."""

    def __post_init__(self) -> None:
        threat(self.threat)
        require(self.eps > 0, f"probe.eps must be a positive radius in pixel units; got {self.eps}.")
        require(self.steps >= 1, f"probe.steps must be at least 1; got {self.steps}.")
        require(self.images >= 1, f"probe.images must be at least 1; got {self.images}.")


_PHASED = ("size", "batch_size", "min_scale", "data", "rectangular")


@dataclass(frozen=True)
class Phase:
    """From epoch `start` on, another image and batch size; what is not given stays as it was, except for `data`."""

    start: int
    size: int | None = None
    batch_size: int | None = None
    min_scale: float | None = None
    data: str | None = None
    """Another copy of the images for this phase alone, for example one that `gradreg data resize` made."""
    rectangular: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a network is trained, for any network and images."""

    objective: Objective = field(default=Undefended(), metadata={"kinds": lambda: OBJECTIVES})
    epochs: int = 30
    batch_size: int = 128
    """Images per update, over all processes and micro-batches."""
    seed: int = 0
    optimizer: OptimizerSettings = field(default=SGD(), metadata={"kinds": lambda: OPTIMIZERS})
    schedule: Schedule = field(default=OneCycle(), metadata={"kinds": lambda: SCHEDULES})
    label_smoothing: float = 0.0
    clip_norm: float | None = None
    """Largest l2 norm of the gradient; longer ones are scaled down."""
    ema: float | None = None
    """Decay of a moving average of the weights, which is then what is evaluated and saved."""
    accumulate: int = 1
    """Micro-batches per update."""
    amp: Literal["off", "bf16"] = "off"
    compile: bool = False
    channels_last: bool = False
    sync_bn: bool = False
    """Compute batch statistics over all processes; not with `compile`."""
    probe: Probe | None = None
    on_divergence: Literal["stop", "rollback"] = "stop"
    on_overfitting: Literal["stop", "rollback", "ignore"] = "stop"
    """"rollback" restores the best epoch and goes on at half the learning rate, at most three times."""
    save_minutes: float = 10.0
    """A checkpoint is written after every epoch and whenever this time has passed."""
    tensorboard: bool = False
    deterministic: bool = False
    """Make torch refuse nondeterministic operations; on a CPU, runs repeat bit for bit anyway."""

    def __post_init__(self) -> None:
        require(self.epochs >= 1, f"epochs must be at least 1; got {self.epochs}.")
        require(self.batch_size >= 1, f"batch_size must be at least 1; got {self.batch_size}.")
        require(self.accumulate >= 1, f"accumulate must be at least 1; got {self.accumulate}.")
        require(
            self.batch_size % self.accumulate == 0,
            f"batch_size must be divisible by accumulate = {self.accumulate}; got {self.batch_size}.",
        )
        require(
            0 <= self.label_smoothing < 1,
            f"label_smoothing must be at least 0 and below 1; got {self.label_smoothing}.",
        )
        require(self.clip_norm is None or self.clip_norm > 0, f"clip_norm must be positive; got {self.clip_norm}.")
        require(self.ema is None or 0 < self.ema < 1, f"ema must be between 0 and 1, exclusive; got {self.ema}.")
        require(
            not (self.sync_bn and self.compile),
            "sync_bn and compile must not both be true, since sums over processes are not compiled: set one to false.",
        )
        require(self.save_minutes >= 0, f"save_minutes must be at least 0; got {self.save_minutes}.")


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """A recipe: settings, images and network."""

    data: str
    model: Mapping[str, Any]
    augment: tuple[Any, ...] = ()
    held_out: int = 500
    """Training images set aside to pick the best epoch; the test set is never used."""
    phases: tuple[Phase, ...] = ()
    min_scale: float = 0.25
    """For image folders: the smallest fraction of an image that a random crop keeps."""
    size: int | None = None
    """For image folders: the side of the square images that the network takes."""
    rectangular: bool = False
    """For image folders: held-out images keep their aspect ratio; `size` is then their shorter side."""
    workers: int = 2
    """For image folders: decoding processes, at most the number of processors."""
    device: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        require("name" in self.model, "The setting 'model.name' is missing.")
        name = self.model["name"]
        require(isinstance(name, str), f"model.name must be a string; got {name!r}.")
        require(self.held_out >= 1, f"held_out must be at least 1, to pick the best epoch; got {self.held_out}.")
        starts = [phase.start for phase in self.phases]
        require(
            starts == sorted(set(starts)) and all(0 <= start < self.epochs for start in starts),
            f"phases must start at increasing epochs from 0 to {self.epochs - 1}; got {starts}.",
        )

    def during(self, epoch: int) -> "Config":
        """The settings in one epoch, with the phases up to it applied; of the `data` only those of its own phase."""
        current = self
        for phase in self.phases:
            if phase.start <= epoch:
                given = {name: getattr(phase, name) for name in _PHASED} | {"data": phase.data or self.data}
                current = replace(current, phases=(), **{k: v for k, v in given.items() if v is not None})
        return current
