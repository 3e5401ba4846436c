"""What a training step costs: plain, with the penalty in its forms, with double backprop and adversarially."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from bench import measure
from bench.options import TrainingOptions
from bench.record import write_json
from gradreg.data import Batches, Images
from gradreg.errors import ConfigError
from gradreg.losses import cross_entropy
from gradreg.models import build
from gradreg.objectives.adversarial import Adversarial
from gradreg.objectives.base import Draws, Moment
from gradreg.penalty import regularized_loss
from gradreg.provenance import machine

SHAPES = {"small": (1, 28, 28), "compact": (3, 32, 32), "resnext34_2x32": (3, 32, 32), "resnet50": (3, 224, 224)}
LAZY = 4
AT_STEPS = 7
LOADING = "data loading"
LOADED_IMAGES, LOADED_BYTES = 50_000, 2**30


@dataclass(frozen=True)
class Cost:
    """A kind of step, relative to plain training of the same network on the same batch."""

    name: str
    seconds: float
    flops: float | None
    """None for what torch does not count: second derivatives, compiled models, and moving bytes."""
    memory: float | None
    """None for data loading, which holds the whole set."""


def show(options: TrainingOptions, console: Console) -> None:
    """Measure, and print the table."""
    torch.set_num_threads(options.threads)
    costs = training_costs(options)
    layout = ", channels last" if options.channels_last else ""
    title = f"{options.model}{layout}, batch {options.batch_size}, {options.threads} thread(s)"
    console.print(table(costs, f"{title}, torch {torch.__version__}"))
    if options.json is not None:
        rows = [asdict(cost) for cost in costs]
        write_json(options.json, {"options": options.facts(), "machine": machine(), "costs": rows})


def training_costs(options: TrainingOptions) -> list[Cost]:
    """Every kind of step, interleaved; a lazy step stands for the mean over a whole cycle."""
    shape, batch_size = SHAPES[options.model], options.batch_size
    chosen = {"activation": options.activation} if options.activation else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(options.model, classes=10, **chosen)
        x = torch.rand(batch_size, *shape)
        y = torch.randint(0, 10, (batch_size,))
    if options.channels_last:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        x = x.contiguous(memory_format=torch.channels_last)
    steps = _steps(model, x, y) | (_compiled_steps(model, x, y) if options.compiled else {})
    times = measure.seconds(steps | {LOADING: _loading(shape, batch_size)}, options.rounds)
    uncounted = ("double backprop", *(name for name in steps if name.endswith("compiled")))
    work = {name: measure.flops(step) for name, step in steps.items() if name not in uncounted}
    peaks = {name: measure.peak_bytes(step) for name, step in steps.items()}
    per_cycle = {name: LAZY if "lazy" in name else 1 for name in times}
    return [
        Cost(
            name,
            times[name] / times["plain"] / per_cycle[name],
            work[name] / work["plain"] / per_cycle[name] if name in work else None,
            peaks[name] / peaks["plain"] if name in peaks else None,
        )
        for name in times
    ]


def multiple(value: float | None) -> str:
    """As a table shows it."""
    if value is None:
        return "–"
    return f"{value:.2f}×" if value >= 0.1 else f"{value:.3f}×"


def table(costs: list[Cost], title: str) -> Table:
    """As multiples of plain training."""
    shown = Table(title=title, title_style="")
    shown.add_column("step")
    for heading in ("time", "FLOPs", "peak memory"):
        shown.add_column(heading, justify="right")
    for cost in costs:
        shown.add_row(cost.name, *map(multiple, (cost.seconds, cost.flops, cost.memory)))
    return shown


def _steps(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, measure.Step]:
    def lazy_cycle() -> None:
        for step in range(LAZY):
            penalised_step(model, x, y, eps=0.1, lazy=LAZY, step=step)()

    def adversarial() -> None:
        model.zero_grad(set_to_none=False)
        moment = Moment(0, 1.0, Draws((0,), len(x), slice(len(x))))
        Adversarial(steps=AT_STEPS)(model, x, y, moment).backward()

    return {
        "plain": plain_step(model, x, y),
        "penalty": penalised_step(model, x, y, eps=0.1),
        f"penalty, lazy {LAZY}": lazy_cycle,
        "penalty, fraction 1/4": penalised_step(model, x, y, eps=0.1, fraction=0.25),
        "penalty, fraction 1/4, frozen bn": penalised_step(model, x, y, eps=0.1, fraction=0.25, bn="frozen"),
        "penalty, squared": penalised_step(model, x, y, lam=0.1),
        "penalty, squared, central difference": penalised_step(model, x, y, lam=0.1, order=2),
        "double backprop": penalised_step(model, x, y, lam=0.1, method="double-backprop"),
        f"adversarial training, {AT_STEPS} steps": adversarial,
    }


def _compiled_steps(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, measure.Step]:
    """The same weights behind torch.compile, compiled here: what can go wrong goes wrong before anything is timed."""
    faster: nn.Module = torch.compile(model)  # type: ignore[assignment]
    steps: dict[str, measure.Step] = {
        "plain, compiled": plain_step(faster, x, y),
        "penalty, compiled": penalised_step(faster, x, y, eps=0.1),
        "penalty, squared, compiled": penalised_step(faster, x, y, lam=0.1),
    }
    try:
        for step in steps.values():
            step()
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"torch.compile cannot compile this network ({reason}). Install a C++ compiler, or leave out --compiled."
        ) from error
    return steps


def _loading(shape: tuple[int, ...], batch_size: int) -> measure.Step:
    """The next batch, cropped and flipped, of as many images as CIFAR-10 has (of large ones, a gigabyte)."""
    size = min(LOADED_IMAGES, LOADED_BYTES // torch.Size(shape).numel())
    source = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (size, *shape), dtype=torch.uint8, generator=source)
    images = Images(pixels, torch.zeros(size, dtype=torch.int64), ("any",))
    batches = Batches(images, batch_size, shuffle=True, augment=("crop", "flip"), drop_last=True)
    endless = (batch for _ in count() for batch in batches)
    return lambda: next(endless)


# Gradients are zeroed in place: weights and their gradients belong to no step's memory.
def plain_step(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    """A step of ordinary training, without the optimizer."""

    def run() -> None:
        model.zero_grad(set_to_none=False)
        cross_entropy(model(x), y).mean().backward()

    return run


def penalised_step(model: nn.Module, x: Tensor, y: Tensor, **options: Any) -> Callable[[], None]:
    """A step with the l2 penalty, without the optimizer."""
    numbers = count()

    def run() -> None:
        model.zero_grad(set_to_none=False)
        regularized_loss(model, x, y, threat="l2", **({"step": next(numbers)} | options)).backward()

    return run
