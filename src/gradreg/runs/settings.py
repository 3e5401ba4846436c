"""Everything that a run depends on, as frozen dataclasses that check themselves before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gradreg.errors import require
from gradreg.norms import ThreatName, threat
from gradreg.objectives import OBJECTIVES, Objective, Undefended
from gradreg.runs.optimizers import OPTIMIZERS, SGD
from gradreg.runs.optimizers import Settings as OptimizerSettings
from gradreg.runs.schedules import SCHEDULES, OneCycle, Schedule


@dataclass(frozen=True)
class Probe:
    """The cheap attack that watches every epoch, on held-out images: PGD from a random start."""

    threat: ThreatName
    eps: float
    steps: int = 10
    images: int = 500
    """At most this many of the held-out images, the first ones."""

    def __post_init__(self) -> None:
        threat(self.threat)
        require(self.eps > 0, f"probe.eps is {self.eps}, but the probe needs a positive radius, in pixel units.")
        require(self.steps >= 1, f"probe.steps is {self.steps}, but an attack takes at least one step.")
        require(self.images >= 1, f"probe.images is {self.images}, but a probe needs at least one image.")


PHASED = ("size", "batch_size", "min_scale", "data", "rectangular")


@dataclass(frozen=True)
class Phase:
    """From epoch `start` on, another size of images and of batches; what is not given stays as it was."""

    start: int
    size: int | None = None
    batch_size: int | None = None
    min_scale: float | None = None
    data: str | None = None
    """Another copy of the images, for example one that `gradreg data resize` made."""
    rectangular: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a network is trained, whatever the network and the images are."""

    objective: Objective = field(default=Undefended(), metadata={"kinds": lambda: OBJECTIVES})
    epochs: int = 30
    batch_size: int = 128
    """Images of one update, over all processes and micro-batches."""
    seed: int = 0
    optimizer: OptimizerSettings = field(default=SGD(), metadata={"kinds": lambda: OPTIMIZERS})
    schedule: Schedule = field(default=OneCycle(), metadata={"kinds": lambda: SCHEDULES})
    label_smoothing: float = 0.0
    clip_norm: float | None = None
    """The gradient's l2 norm is cut to this."""
    ema: float | None = None
    """Decay of a moving average of the weights; what is examined and kept is then the average."""
    accumulate: int = 1
    """Micro-batches an update is gathered from."""
    amp: Literal["off", "bf16"] = "off"
    compile: bool = False
    channels_last: bool = False
    sync_bn: bool = False
    """Batch statistics over all processes, not each its own; not with `compile`."""
    probe: Probe | None = None
    on_divergence: Literal["stop", "rollback"] = "stop"
    on_overfitting: Literal["stop", "rollback", "ignore"] = "stop"
    """"rollback" goes back to the best epoch and on from there at half the rate, three times at most."""
    save_minutes: float = 10.0
    """How much work may be lost: a checkpoint is written at the end of an epoch and when this time has passed."""
    tensorboard: bool = False
    deterministic: bool = False
    """Have torch refuse operations whose bits can differ from run to run; a CPU repeats a run to the bit anyway."""

    def __post_init__(self) -> None:
        require(self.epochs >= 1, f"epochs is {self.epochs}, but training takes at least one.")
        require(self.batch_size >= 1, f"batch_size is {self.batch_size}, but a batch needs at least one image.")
        require(self.accumulate >= 1, f"accumulate is {self.accumulate}, but it is a number of micro-batches.")
        require(
            self.batch_size % self.accumulate == 0,
            f"batch_size is {self.batch_size}, which accumulate = {self.accumulate} micro-batches cannot share evenly.",
        )
        require(
            0 <= self.label_smoothing < 1,
            f"label_smoothing is {self.label_smoothing}, but it is a share of the label, 0 ≤ label_smoothing < 1.",
        )
        require(
            self.clip_norm is None or self.clip_norm > 0, f"clip_norm is {self.clip_norm}, but a bound is positive."
        )
        require(self.ema is None or 0 < self.ema < 1, f"ema is {self.ema}, but a decay lies between 0 and 1.")
        require(
            not (self.sync_bn and self.compile),
            "sync_bn = true and compile = true do not go together: sums over processes are not compiled. Drop one.",
        )
        require(self.save_minutes >= 0, f"save_minutes is {self.save_minutes}, but it is a time, 0 or more.")


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """A recipe: how, on which images, and which network."""

    data: str
    model: Mapping[str, Any]
    augment: tuple[Any, ...] = ()
    held_out: int = 500
    """Training images that are not trained on but pick the best epoch; the test set is never looked at."""
    phases: tuple[Phase, ...] = ()
    min_scale: float = 0.25
    """For image folders: the least share of an image that a random crop keeps."""
    size: int | None = None
    """For image folders: the side of the square that the network is given."""
    rectangular: bool = False
    """For image folders: held-out images are seen in their own proportions, `size` is then their shorter side."""
    workers: int = 2
    """For image folders: processes that decode, no more than there are processors."""
    device: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        require("name" in self.model, "The setting 'model.name' is missing.")
        name = self.model["name"]
        require(isinstance(name, str), f"model.name is {name!r}, but it must be a text.")
        require(self.held_out >= 1, f"held_out is {self.held_out}, but some images must pick the best epoch.")
        starts = [phase.start for phase in self.phases]
        require(
            starts == sorted(set(starts)) and all(0 <= start < self.epochs for start in starts),
            f"Phases start at epochs {starts}, but they must rise and lie within the {self.epochs} epochs.",
        )

    def during(self, epoch: int) -> "Config":
        """These settings as they stand in one epoch."""
        current = self
        for phase in self.phases:
            if phase.start <= epoch:
                given = {name: getattr(phase, name) for name in PHASED}
                current = replace(current, phases=(), **{k: v for k, v in given.items() if v is not None})
        return current
