"""From a recipe, or from a network and images in Python, to a run directory."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from torch import nn

from gradreg.calling.answers import Output
from gradreg.calling.asking import check_weights, precision
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_integer, shown
from gradreg.config import tables
from gradreg.errors import ConfigError, Interrupted
from gradreg.losses import cross_entropy
from gradreg.models.registry import complete, from_table
from gradreg.objectives import Objective
from gradreg.penalty.passes import Criterion
from gradreg.processes import Processes, joined
from gradreg.reading import naming
from gradreg.runs.directory import CONFIG, RunDirectory
from gradreg.runs.settings import Config, Settings
from gradreg.storage import check_storable
from gradreg.training.begun import Begun, code_of, data_of
from gradreg.training.callbacks import OnEpoch, OnStep, callbacks_of
from gradreg.training.determinism import deterministic
from gradreg.training.fitted import Fitted
from gradreg.training.found_out import found_out
from gradreg.training.frozen import trained_only
from gradreg.training.given import Data, batches_of
from gradreg.training.joint_norm import joint_statistics
from gradreg.training.leftover import check_last_batch
from gradreg.training.listening import Listeners, Loggers, loggers_of
from gradreg.training.loggers import Logger, TensorBoardLogger
from gradreg.training.loop import Trainer
from gradreg.training.measure import Measure, Score
from gradreg.training.reporting import Reporter
from gradreg.training.sources import Loaders, Source, from_config, reseed


@validated
def fit(
    model: nn.Module,
    data: Data,
    objective: Objective | Mapping[str, Any] | str = "undefended",
    *,
    run: str | Path | None = None,
    resume: bool = False,
    held_out: int = 500,
    augment: tuple[Any, ...] = (),
    console: Console | None = None,
    callbacks: Sequence[object] = (),
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    loggers: Sequence[Logger] = (),
    criterion: Criterion | None = None,
    output: Output | None = None,
    score: Score | None = None,
    **settings: Any,
) -> Fitted:
    """Train `model` in place, on its own device; then it holds the weights of the best epoch and is in eval mode.

    `data` is a data set or a part of one, or (images, labels) in tensors or arrays, of which `held_out` images pick the
    best epoch; or your own loaders as a pair (training batches, held-out batches) of pixels in [0, 1] and labels.
    Batches are pairs or mappings ("image" or "pixel_values", "label" or "labels"). Data sets of Hugging Face,
    torchvision and your own are data sets too, and go in the place of loaders, as (images, labels) do.

    `settings` are those of a recipe, under the same names: `epochs=30`, `optimizer={"name": "adamw", "lr": 1e-3}`,
    `probe={"threat": "l2", "eps": 0.5}`.
    Shuffling and augmentation inside a loader are seeded, so a run in a directory resumes bit for bit.
    The global random state is restored afterwards.

    `on_epoch` and `on_step` are functions of an `EpochEnd` or a `StepEnd`, called in every process; `callbacks` are
    objects with methods of these names. Training does not notice what they do, unless they call `stop()` of what they
    get. `loggers` (`gradreg.training.MLflowLogger(…)` and others) get the numbers of every epoch.

    `criterion` takes logits and targets of any form (soft labels, masks, mappings, tuples) and returns one loss per
    image; default: cross entropy. `output` is a function from what the model returns to logits, where that is neither a
    tensor nor has logits. `score` takes logits and targets and returns a number from 0 to 1 per image, which picks the
    best epoch where targets are not labels; default: whether the label is ahead.
    """
    held_out = check_integer("held_out", held_out, least=1, usual="images that pick the best epoch")
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model must be an nn.Module, whose weights are trained; got {shown(model)}.")
    chosen = tables.build(Settings, {"objective": objective, **settings})
    if criterion is not None and chosen.label_smoothing:
        raise ConfigError("label_smoothing is that of the default criterion: leave it out, or the criterion.")
    measure = Measure(cross_entropy if criterion is None else criterion, output, score)
    listeners = Listeners(console, loggers_of(loggers), callbacks_of(callbacks, on_step, on_epoch))
    weight = next(model.parameters(), None)
    if weight is None:
        raise ConfigError("The model has no parameters, so there is nothing to train.")
    check_weights(model, lazy=not chosen.ema)
    check_storable(model.state_dict(), "keep it out of the state_dict, as by register_buffer(…, persistent=False)")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("No weight of the model has requires_grad, so there is nothing to train.")
    if "train" in vars(model):
        raise ConfigError(
            "The model comes from torch.export, where it cannot be trained: fit the model it was made of."
        )
    with joined(str(weight.device)) as processes, _preserve_random_state(processes):
        parts = [Loaders(0, *batches_of(data, chosen, held_out, augment, processes))]
        # Nobody can cast the images of a file; a model in half precision knows what to do with those in single.
        kind = torch.float64 if precision(model) == torch.float64 else None
        source = Source(parts, chosen.seed, weight.device, kind)
        if not chosen.train_only:  # frozen layers keep their statistics
            check_last_batch(model, parts[0].train, weight.device, kind)
        if run is not None:
            begun = partial(_begun, source, processes, model, measure, augment)
            return _run(model, source, chosen, _recipe(chosen), processes, Path(run), resume, listeners, measure, begun)
        with TemporaryDirectory() as folder:
            try:
                made = _recipe(chosen)
                fitted = _run(model, source, chosen, made, processes, Path(folder), False, listeners, measure)
            except Interrupted as stop:
                raise KeyboardInterrupt from stop  # nothing was saved, so there is nothing to resume
            return replace(fitted, run=None)


@validated
def train(
    config: Config, run: Path, *, resume: bool = False, console: Console | None = None, data_dir: Path | None = None
) -> Fitted:
    """Train by a recipe and write the run directory `run`, with one process or all those that torchrun started."""
    with joined(config.device) as processes, _preserve_random_state(processes):
        config = found_out(config, str(data_dir) if data_dir else None)
        source, shape = from_config(config, processes, str(data_dir) if data_dir else None)
        with naming(run / CONFIG, "its model cannot be built") if resume else nullcontext():
            model_table = complete(config.model, shape.classes, shape.channels)
            reseed(config.seed)
            model = from_table(model_table)
        check_weights(model, lazy=True)
        model = model.to(processes.device)
        table = _recipe(replace(config, model=model_table))
        begun = partial(_begun, source, processes)
        return _run(model, source, config, table, processes, run, resume, Listeners(console), Measure(), begun)


def _run(
    model: nn.Module,
    source: Source,
    settings: Settings,
    table: Mapping[str, Any],
    processes: Processes,
    folder: Path,
    resume: bool,
    listeners: Listeners,
    measure: Measure,
    begun: Callable[[], Begun] = dict,
) -> Fitted:
    run = RunDirectory(folder)
    # Others have other parts of the images and write no checkpoints. Joint batch norm would be other layers.
    about = begun() if processes.first else {}
    boards = [TensorBoardLogger(folder / "tensorboard")] if settings.tensorboard and processes.first else []
    told = [*listeners.loggers, *boards] if processes.first else []
    with (
        deterministic(settings.deterministic, processes.device),
        _synchronized_batch_norm(model, settings, processes),
        trained_only(model, settings.train_only),
    ):
        if resume:
            run.check_same(table, _with_defaults(run.config(), settings))
        elif processes.first:
            run.check_empty()  # before a lock file is put into somebody else's folder
        with run.lock() if processes.first else nullcontext():
            if processes.first and not resume:
                run.start(table)
            processes.wait()
            if settings.channels_last:
                model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            with Reporter(listeners.console if processes.first else None) as reporter, Loggers(told) as loggers:
                told_by = reporter, loggers, listeners.callbacks
                trainer = Trainer(model, source, settings, processes, run, *told_by, measure, about)
                if resume:
                    trainer.resume()
                trainer.train()
            best = run.weights("best")
            model.load_state_dict(best.tensors)
            model.eval()
            return Fitted(run.metrics(), best.numbers["metrics"], folder)


def _begun(
    source: Source,
    processes: Processes,
    model: nn.Module | None = None,
    measure: Measure | None = None,
    augment: tuple[Any, ...] = (),
) -> Begun:
    """What the run is begun or resumed with; the model and its functions where no recipe names them."""
    data = data_of(source, alone=processes.world == 1)
    return data if model is None or measure is None else {**data, **code_of(model, measure, augment)}


def _recipe(settings: Settings) -> dict[str, Any]:
    """The settings as a recipe; younger ones that are not used are left out, so that older runs compare equal."""
    table = tables.plain(settings)
    return {name: value for name, value in table.items() if name not in ("auto", "train_only") or value}


def _with_defaults(before: Mapping[str, Any], settings: Settings) -> Mapping[str, Any]:
    """The recipe of a run, with defaults for settings that did not exist when it was started."""
    try:
        return _recipe(tables.build(type(settings), before))
    except ConfigError:  # it holds an object made in Python, or a setting that no longer exists
        return before


def _preserve_random_state(processes: Processes) -> AbstractContextManager[None]:
    device = processes.device
    kind = "cuda" if device.type == "cpu" else device.type
    return torch.random.fork_rng([] if device.type == "cpu" else [device.index or 0], device_type=kind)


def _synchronized_batch_norm(
    model: nn.Module, settings: Settings, processes: Processes
) -> AbstractContextManager[None]:
    """Batch statistics over all processes, if the settings ask for them."""
    return joint_statistics(model) if settings.sync_bn and processes.world > 1 else nullcontext()
