"""The settings of a run, as frozen dataclasses that are checked before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import (
    AtMost,
    Below1,
    Between0And1,
    Count,
    Natural,
    NotNegative,
    Positive,
    Range,
    Side,
    UpTo1,
    check_integer,
    require,
)
from gradreg.data.augment import pipeline
from gradreg.norms import Threat, ThreatName, threat
from gradreg.objectives import OBJECTIVES, Objective, Undefended
from gradreg.runs.optimizers import OPTIMIZERS, SGD
from gradreg.runs.optimizers import Settings as OptimizerSettings
from gradreg.runs.schedules import SCHEDULES, OneCycle, Schedule


@dataclass(frozen=True)
class Probe:
    """The cheap attack that measures robust accuracy on held-out images after every epoch: PGD from a random start."""

    threat: ThreatName | Threat
    eps: Positive
    steps: Count = 10
    images: AtMost = 500
    """At most this many of the held-out images, the first ones."""

    def __post_init__(self) -> None:
        threat(self.threat)
        check_fields(self, "probe.")


_PHASED = ("size", "batch_size", "min_scale", "data", "rectangular")


@dataclass(frozen=True)
class Phase:
    """From epoch `start` on, another image and batch size; what is not given stays as it was, except for `data`."""

    start: Natural
    size: Side | None = None
    batch_size: AtMost | None = None
    min_scale: UpTo1 | None = None
    data: str | None = None
    """Another copy of the images for this phase alone, for example one that `gradreg data resize` made."""
    rectangular: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self, "phases.")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a network is trained, for any network and images."""

    objective: Objective = field(default=Undefended(), metadata={"kinds": lambda: OBJECTIVES})
    epochs: Count = 30
    batch_size: AtMost = 128
    """Images per update, over all processes and micro-batches."""
    seed: Natural = 0
    optimizer: OptimizerSettings = field(default=SGD(), metadata={"kinds": lambda: OPTIMIZERS})
    schedule: Schedule = field(default=OneCycle(), metadata={"kinds": lambda: SCHEDULES})
    label_smoothing: Below1 = 0.0
    clip_norm: Positive | None = None
    """Largest l2 norm of the gradient; longer ones are scaled down."""
    ema: Between0And1 | None = None
    """Decay of a moving average of the weights, which is then what is evaluated and saved."""
    accumulate: Count = 1
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
    save_minutes: NotNegative = 10.0
    """A checkpoint is written after every epoch and whenever this time has passed."""
    log_steps: Natural = 0
    """Write what every so many steps logged to steps.jsonl, from the first on, which `lazy` and `omega` count from too.

    Across processes it is the first one's share. 0: none."""
    tensorboard: bool = False
    train_only: tuple[str, ...] = ()
    """Beginnings of the names of parameters that are trained, as ["head"]; the others are frozen. Default: all."""
    deterministic: bool = False
    """Make torch refuse nondeterministic operations; on a CPU, runs repeat bit for bit anyway."""

    def __post_init__(self) -> None:
        check_fields(self)
        require(
            self.batch_size % self.accumulate == 0,
            f"batch_size must be divisible by accumulate = {self.accumulate}; got {self.batch_size}.",
        )
        require(
            not (self.sync_bn and self.compile),
            "sync_bn and compile must not both be true, since sums over processes are not compiled: set one to false.",
        )


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """A recipe: settings, images and network."""

    data: str
    model: Mapping[str, Any]
    augment: tuple[Any, ...] = ()
    held_out: Annotated[int, Range(least=1, usual="images that pick the best epoch")] = 500
    """Training images set aside to pick the best epoch; the test set is never used."""
    phases: tuple[Phase, ...] = ()
    min_scale: UpTo1 = 0.25
    """For image folders: the smallest fraction of an image that a random crop keeps."""
    size: Side | None = None
    """For image folders: the side of the square images that the network takes."""
    rectangular: bool = False
    """For image folders: held-out images keep their aspect ratio; `size` is then their shorter side."""
    workers: Natural = 2
    """For image folders: decoding processes, at most the number of processors."""
    auto: bool = False
    """Find out `size`, `held_out` and a batch size that the images fill, where they are not set."""
    device: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        pipeline(self.augment)
        require("name" in self.model, "The setting 'model.name' is missing.")
        name = self.model["name"]
        require(isinstance(name, str), f"model.name must be a string; got {name!r}.")
        starts = [phase.start for phase in self.phases]
        require(
            starts == sorted(set(starts)) and all(0 <= start < self.epochs for start in starts),
            f"phases must start at increasing epochs from 0 to {self.epochs - 1}; got {starts}.",
        )

    def during(self, epoch: int) -> "Config":
        """The settings in one epoch, with the phases up to it applied; of the `data` only those of its own phase."""
        current, epoch = self, check_integer("epoch", epoch, least=0)
        for phase in self.phases:
            if phase.start <= epoch:
                given = {name: getattr(phase, name) for name in _PHASED} | {"data": phase.data or self.data}
                current = replace(current, phases=(), **{k: v for k, v in given.items() if v is not None})
        return current
