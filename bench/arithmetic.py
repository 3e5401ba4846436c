"""What a training step of a recipe costs in arithmetic, counted and not timed: so many forwards of its network."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import Tensor, nn

from bench import measure
from bench.recipe import LATE, cycle, fresh
from gradreg.config import tables
from gradreg.objectives import Undefended
from gradreg.objectives.base import Draws, Moment, Objective
from gradreg.runs import Config

_BATCH = 4


def step_forwards(recipe: Mapping[str, Any]) -> float:
    """Mean arithmetic of a step in units of F, a third of plain training's step: a forward, and two for its backward.

    On random images: what depends on the images, as a second step for some of them, is that of a fresh network.
    """
    return _counted(json.dumps({key: recipe[key] for key in ("data", "model", "objective")}, sort_keys=True))


@cache
def _counted(text: str) -> float:
    config = tables.build(Config, json.loads(text))
    model, x, y = fresh(config, _BATCH)
    steps = cycle(config.objective)
    plain = _cycle_flops(model, Undefended(), x, y, 1)
    return 3 * _cycle_flops(model, config.objective, x, y, steps) / steps / plain


def _cycle_flops(model: nn.Module, objective: Objective, x: Tensor, y: Tensor, steps: int) -> int:
    memory: dict[str, Tensor] = {}

    def run() -> None:
        for step in range(1, steps + 1):
            model.zero_grad()
            at = Moment(step, LATE, Draws((0, step), len(x), slice(len(x))), memory=memory)
            objective(model, x, y, at).backward()

    return measure.flops(run)
