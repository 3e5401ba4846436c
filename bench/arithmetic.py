"""What a training step of a recipe costs in arithmetic, counted and not timed: so many forwards of its network."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from bench import measure
from bench.training import SHAPES
from gradreg.config import tables
from gradreg.models import build
from gradreg.models.registry import complete
from gradreg.objectives import Undefended
from gradreg.objectives.base import Draws, Moment, Objective
from gradreg.runs import Config

_BATCH, _CLASSES = 4, 10
# After every ramp: a penalty that grows costs a pass more until its clean loss cancels.
_LATE = 1e6


def step_forwards(recipe: Mapping[str, Any]) -> float:
    """Mean arithmetic of a step in units of F, a third of plain training's step: a forward, and two for its backward.

    On random images: what depends on the images, as a second step for some of them, is that of a fresh network.
    """
    return _counted(json.dumps({key: recipe[key] for key in ("data", "model", "objective")}, sort_keys=True))


@cache
def _counted(text: str) -> float:
    config = tables.build(Config, json.loads(text))
    shape = SHAPES[config.model["name"]]
    options = complete(config.model, _CLASSES, shape[0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(options.pop("name"), **options).train()
        x = torch.rand(_BATCH, *shape)
        y = torch.arange(_BATCH)
        cycle = getattr(config.objective, "lazy", 1)
        plain = _cycle_flops(model, Undefended(), x, y, 1)
        return 3 * _cycle_flops(model, config.objective, x, y, cycle) / cycle / plain


def _cycle_flops(model: nn.Module, objective: Objective, x: Tensor, y: Tensor, steps: int) -> int:
    memory: dict[str, Tensor] = {}

    def cycle() -> None:
        for step in range(1, steps + 1):
            model.zero_grad()
            at = Moment(step, _LATE, Draws((0, step), len(x), slice(len(x))), memory=memory)
            objective(model, x, y, at).backward()

    return measure.flops(cycle)
