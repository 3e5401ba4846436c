"""`python -m bench steps RECORD…`: seconds of a training step of every recipe among the records, side by side.

Hours of a training depend on what else the machine did. Here all recipes take turns, and the best time of each counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from rich.console import Console

from bench import measure
from bench.recipe import LATE, cycle, fresh, step_key, step_settings
from bench.record import plain_table, write_json
from bench.steps_options import StepsOptions
from gradreg.config import tables
from gradreg.errors import ConfigError
from gradreg.processes import Processes
from gradreg.provenance import machine
from gradreg.reading import one_sentence, read_json
from gradreg.runs import Config
from gradreg.training.step import Learner


@dataclass(frozen=True)
class StepTime:
    """A recipe's step."""

    settings: Mapping[str, Any]
    """Those of the recipe that the time depends on; `step_key` of them finds it."""
    networks: tuple[str, ...]
    """Trained with these settings."""
    seconds: float
    """The mean over a cycle, of the best time of each of its steps."""


def show(options: StepsOptions, console: Console) -> None:
    """Time all recipes, print the table, and write the file if one is named."""
    torch.set_num_threads(options.threads)
    found = step_times([_record(path) for path in options.records], options.rounds)
    title = f"seconds per step, best of {options.rounds} rounds in turn, {options.threads} thread(s)"
    table = plain_table(title, ("networks", "seconds"), 1)
    for each in sorted(found, key=lambda one: one.seconds):
        table.add_row(", ".join(each.networks), f"{each.seconds:.4f}")
    console.print(table)
    if options.json is not None:
        steps = [asdict(each) for each in found]
        write_json(options.json, {"options": options.facts(), "machine": machine(), "steps": steps})


def step_times(records: Sequence[tuple[str, Mapping[str, Any]]], rounds: int) -> list[StepTime]:
    """Of every distinct recipe; a record is the name of a network and its recipe."""
    networks: dict[str, list[str]] = {}
    recipes: dict[str, dict[str, Any]] = {}
    for name, recipe in records:
        key = step_key(recipe)
        networks.setdefault(key, []).append(name)
        recipes[key] = step_settings(recipe)
    # A step of a cycle is timed by itself, so that a lazy one is disturbed as often as any other.
    steps = {key: _steps(recipe) for key, recipe in recipes.items()}
    every = {f"{number} {key}": step for key, some in steps.items() for number, step in enumerate(some)}
    times = measure.seconds(every, rounds)
    return [
        StepTime(recipes[key], tuple(names), mean(times[f"{number} {key}"] for number in range(len(steps[key]))))
        for key, names in networks.items()
    ]


def _steps(settings: Mapping[str, Any]) -> list[measure.Step]:
    """The trainer's own steps of a cycle, after every ramp.

    At a learning rate of 0 the optimizer does its work, and all rounds are of the same weights.
    """
    config = tables.build(Config, settings)
    model, x, y = fresh(config, config.batch_size)
    if config.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    learner = Learner(model, config, Processes(0, 1, torch.device("cpu")))
    return [
        partial(learner.step, x, y, (0, number), number, LATE, factor=0.0) for number in range(cycle(config.objective))
    ]


def _record(path: Path) -> tuple[str, Mapping[str, Any]]:
    with one_sentence(path, "pass a record of `python -m bench verdict`"):
        found = read_json(path)
        recipe = step_settings(found["recipe"])
        if recipe["phases"] or recipe["train_only"]:
            raise ConfigError("phases and train_only must be empty, so that all steps train the whole network alike")
        return str(found["model"]), recipe
