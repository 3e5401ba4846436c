"""The `gradreg` command. Each subcommand is a dataclass of its options; what it does is imported when it runs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gradreg.errors import GradregError


@dataclass(frozen=True)
class Demo:
    """Train a small network on real digits plainly and with the penalty, and compare them (under a minute)."""

    epochs: int = 6
    seed: int = 0
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.demo import demo

        demo(self.epochs, self.seed, self.data_dir, Console())


@dataclass(frozen=True)
class Models:
    """List the networks that `gradreg.build` knows."""

    def run(self) -> None:
        from gradreg.models import names

        for name, description in names().items():
            sys.stdout.write(f"{name:16} {description}\n")


@dataclass(frozen=True)
class Data:
    """Look at a data set: what it holds, or which files are wanted where."""

    name: tyro.conf.Positional[str]
    """mnist5k, fashion-mnist, cifar10 or folder:PATH."""
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from gradreg.data import load

        found = load(self.name, self.data_dir)
        classes = ", ".join(found.classes[:10]) + (", …" if len(found.classes) > 10 else "")
        sys.stdout.write(
            f"{found.name}: {len(found.train)} training and {len(found.test)} test images, "
            f"{len(found.classes)} classes ({classes})\n"
        )


@dataclass(frozen=True)
class Bench:
    """Measure what a training step costs: time, FLOPs and peak memory, as multiples of plain training."""

    what: tyro.conf.Positional[Literal["training"]]
    model: Literal["small", "compact", "resnext34_2x32", "resnet50"] = "compact"
    batch_size: int = 128
    rounds: int = 5
    """How often each step is timed, in turn; the best counts."""
    activation: str | None = None
    """relu, c2relu, gelu, silu or softplus; else the network's own."""
    threads: int = 1

    def run(self) -> None:
        import torch
        from rich.console import Console

        from gradreg.bench.training import table, training_costs

        torch.set_num_threads(self.threads)
        costs = training_costs(self.model, self.batch_size, self.rounds, self.activation)
        title = f"{self.model}, batch {self.batch_size}, {self.threads} thread(s), torch {torch.__version__}"
        Console().print(table(costs, title))


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Models, tyro.conf.subcommand("models")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit status 2."""
    command: Demo | Models | Data | Bench = tyro.cli(Command, prog="gradreg", args=arguments, description=_ABOUT)
    try:
        command.run()
    except GradregError as mistake:
        sys.stderr.write(f"gradreg: {mistake}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


_ABOUT = "Adversarially robust image classifiers by input gradient regularization, and how robust they really are."
