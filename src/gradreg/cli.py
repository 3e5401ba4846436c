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
class Train:
    """Carry out a recipe and write a run directory; torchrun -m gradreg train … does it with several processes."""

    recipe: tyro.conf.Positional[str | None] = None
    """A name that `gradreg recipes` lists, or the path of a .toml file; with --resume it may be left out."""
    run_dir: Annotated[Path, tyro.conf.arg(name="run")] = Path("runs/latest")
    """The run directory; unless --resume is given it must be empty or new."""
    set: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A setting to change, as in --set epochs=30 --set objective.lam=1."""
    resume: bool = False
    """Continue the run in the directory, from its newest checkpoint."""
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.training.command import carry_out

        sys.exit(carry_out(self.recipe, self.run_dir, self.set, self.resume, self.data_dir, Console()))


@dataclass(frozen=True)
class Recipes:
    """List the recipes that `gradreg train` knows, or show one."""

    name: tyro.conf.Positional[str | None] = None
    """The recipe to show."""

    def run(self) -> None:
        from gradreg import recipes

        if self.name is not None:
            sys.stdout.write(recipes.text(self.name))
            return
        for name, description in recipes.names().items():
            sys.stdout.write(f"{name:26} {description}\n")


@dataclass(frozen=True)
class BenchTraining:
    """What a training step costs: time, FLOPs and peak memory, as multiples of plain training."""

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


@dataclass(frozen=True)
class BenchCertify:
    """How well bounds hold, how few samples certificates need, and what both cost (25 minutes on one core)."""

    images: int = 200
    """Test images whose bounds are compared with attacks."""
    smoothing_images: int = 50
    """Test images to certify; Cohen's procedure takes 100,000 samples of each."""
    epochs: int = 6
    seed: int = 0
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""
    json: Path | None = None
    """A file to write all figures to."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.bench.certify_command import Options, bench_certify

        options = Options(self.images, self.smoothing_images, self.epochs, self.seed)
        bench_certify(options, self.data_dir, self.json, Console())


@dataclass(frozen=True)
class BenchAttacks:
    """Distances, robust accuracy and costs of our attacks beside foolbox's, ART's and AutoAttack's (slow)."""

    images: int = 100
    """Test images to attack, the last ones that both networks classify; 16 took 17 minutes on a busy machine."""
    seed: int = 0
    epochs: int = 6
    threats: str = "l2,linf"
    peers: str = "foolbox,art,autoattack"
    """Whom to run beside; empty for nobody. pip install gradreg[bench] brings them all."""
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""
    json: Path | None = None
    """A file to write all figures to."""

    def run(self) -> None:
        from rich.console import Console

        from gradreg.bench.attacks_command import Options, bench_attacks

        options = Options.parsed(self.images, self.seed, self.epochs, self.threats, self.peers)
        bench_attacks(options, self.data_dir, self.json, Console())


@dataclass(frozen=True)
class Bench:
    """Measure gradreg itself, side by side with what it is compared to."""

    what: Annotated[
        Annotated[BenchTraining, tyro.conf.subcommand("training")]
        | Annotated[BenchCertify, tyro.conf.subcommand("certify")]
        | Annotated[BenchAttacks, tyro.conf.subcommand("attacks")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> None:
        self.what.run()


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Models, tyro.conf.subcommand("models")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Recipes, tyro.conf.subcommand("recipes")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit status 2."""
    command: Demo | Models | Data | Train | Recipes | Bench = tyro.cli(
        Command, prog="gradreg", args=arguments, description=_ABOUT
    )
    try:
        command.run()
    except GradregError as mistake:
        sys.stderr.write(f"gradreg: {mistake}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


_ABOUT = "Adversarially robust image classifiers by input gradient regularization, and how robust they really are."
