"""What a training step costs: plain, with the penalty in its forms, with double backprop and adversarially."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn

from gradreg.bench import measure
from gradreg.losses import cross_entropy
from gradreg.models import build
from gradreg.objectives.adversarial import Adversarial
from gradreg.objectives.base import Draws, Moment
from gradreg.penalty import regularized_loss

SHAPES = {"small": (1, 28, 28), "compact": (3, 32, 32), "resnext34_2x32": (3, 32, 32), "resnet50": (3, 224, 224)}
LAZY = 4
AT_STEPS = 7


@dataclass(frozen=True)
class Cost:
    """A kind of step, relative to plain training of the same network on the same batch."""

    name: str
    seconds: float
    flops: float | None
    """None for double backprop, whose second derivatives torch does not count."""
    memory: float


def training_costs(model_name: str, batch_size: int, rounds: int, activation: str | None = None) -> list[Cost]:
    """Every kind of step, interleaved; a lazy step stands for the mean over a whole cycle."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(model_name, classes=10, **({"activation": activation} if activation else {}))
        x = torch.rand(batch_size, *SHAPES[model_name])
        y = torch.randint(0, 10, (batch_size,))
    steps = _steps(model, x, y)
    times = measure.seconds(steps, rounds)
    work = {name: measure.flops(step) for name, step in steps.items() if name != "double backprop"}
    peaks = {name: measure.peak_bytes(step) for name, step in steps.items()}
    per_cycle = {name: LAZY if name.startswith("lazy") else 1 for name in steps}
    return [
        Cost(
            name,
            times[name] / times["plain"] / per_cycle[name],
            work[name] / work["plain"] / per_cycle[name] if name in work else None,
            peaks[name] / peaks["plain"],
        )
        for name in steps
    ]


def table(costs: list[Cost], title: str) -> Table:
    """As multiples of plain training."""
    shown = Table(title=title, title_style="")
    shown.add_column("step")
    for heading in ("time", "FLOPs", "peak memory"):
        shown.add_column(heading, justify="right")
    for cost in costs:
        values = (cost.seconds, cost.flops, cost.memory)
        shown.add_row(cost.name, *("–" if value is None else f"{value:.2f}×" for value in values))
    return shown


def _steps(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, measure.Step]:
    numbers = count()

    # Gradients are zeroed in place: weights and their gradients belong to no step's memory.
    def plain() -> None:
        model.zero_grad(set_to_none=False)
        cross_entropy(model(x), y).mean().backward()

    def penalised(**options: Any) -> Callable[[], None]:
        def run() -> None:
            model.zero_grad(set_to_none=False)
            regularized_loss(model, x, y, threat="l2", lam=0.1, step=next(numbers), **options).backward()

        return run

    def lazy_cycle() -> None:
        for step in range(LAZY):
            model.zero_grad(set_to_none=False)
            regularized_loss(model, x, y, threat="l2", lam=0.1, lazy=LAZY, step=step).backward()

    def adversarial() -> None:
        model.zero_grad(set_to_none=False)
        moment = Moment(0, 1.0, Draws((0,), len(x), slice(len(x))))
        Adversarial(steps=AT_STEPS)(model, x, y, moment).backward()

    return {
        "plain": plain,
        "penalty": penalised(),
        f"lazy {LAZY}": lazy_cycle,
        "fraction 1/4": penalised(fraction=0.25),
        "fraction 1/4, frozen bn": penalised(fraction=0.25, bn="frozen"),
        "central difference": penalised(order=2),
        "double backprop": penalised(method="double-backprop"),
        f"adversarial training, {AT_STEPS} steps": adversarial,
    }
