"""What the cost of a training step depends on in a recipe, and a fresh network with a batch to try such a step on."""

import json
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradreg.config import tables
from gradreg.errors import ConfigError
from gradreg.models.registry import complete, from_table
from gradreg.objectives.base import Objective
from gradreg.runs import Config


class _Set(NamedTuple):
    """Of training images."""

    size: int
    shape: tuple[int, int, int]


SETS = {
    "cifar10": _Set(50_000, (3, 32, 32)),
    "fashion-mnist": _Set(60_000, (1, 28, 28)),
    "mnist5k": _Set(4_000, (1, 28, 28)),
}
CLASSES = 10
LATE = 1e6
"""An epoch after every ramp: a penalty that grows costs a pass more until its clean loss cancels."""

_OF_STEPS = (
    "data",
    "model",
    "objective",
    "batch_size",
    "phases",
    "optimizer",
    "label_smoothing",
    "clip_norm",
    "ema",
    "accumulate",
    "amp",
    "compile",
    "channels_last",
    "train_only",
)


def step_settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the time of a step depends on, defaults included: not the seed, epochs, schedule or probe."""
    whole = tables.plain(tables.build(Config, {key: recipe[key] for key in _OF_STEPS if key in recipe}))
    return {key: whole[key] for key in _OF_STEPS if key in whole}


def step_key(recipe: Mapping[str, Any]) -> str:
    """The same text for recipes whose steps are the same work."""
    return json.dumps(step_settings(recipe), sort_keys=True)


def training_steps(recipe: Mapping[str, Any]) -> int:
    """Updates of the whole training: batches that held-out images leave, none of them smaller than the others."""
    config = tables.build(Config, recipe)
    return config.epochs * ((_set(config).size - config.held_out) // config.batch_size)


def cycle(objective: Objective) -> int:
    """After how many steps the work repeats."""
    return prod(getattr(objective, name, 1) or 1 for name in ("lazy", "omega", "replays"))


def fresh(config: Config, images: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A new network of the recipe in train mode, with a batch of random images and labels, always the same."""
    shape = _set(config).shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = from_table(complete(config.model, CLASSES, shape[0])).train()
        return model, torch.rand(images, *shape), torch.arange(images) % CLASSES


def _set(config: Config) -> _Set:
    if config.data not in SETS:
        raise ConfigError(f"data must be one of {', '.join(SETS)} to count or time its steps; got {config.data}.")
    return SETS[config.data]
