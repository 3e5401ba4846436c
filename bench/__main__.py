"""`python -m bench`: measurements of gradreg itself. What they do is imported when they run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from gradreg.cli import run


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
    compiled: bool = False
    """Also time the network behind torch.compile: needs a C++ compiler and a minute or more."""
    channels_last: bool = False
    """Weights and images in the order in memory that the CIFAR-10 recipes train in."""

    def run(self) -> None:
        import torch
        from rich.console import Console

        from bench.training import table, training_costs

        torch.set_num_threads(self.threads)
        costs = training_costs(
            self.model, self.batch_size, self.rounds, self.activation, self.compiled, self.channels_last
        )
        layout = ", channels last" if self.channels_last else ""
        title = f"{self.model}{layout}, batch {self.batch_size}, {self.threads} thread(s), torch {torch.__version__}"
        Console().print(table(costs, title))


@dataclass(frozen=True)
class BenchCertify:
    """How well bounds hold, how few samples certificates need, and what both cost (two hours on a core)."""

    images: int = 200
    """Test images whose bounds are compared with attacks."""
    smoothing_images: int = 200
    """Test images to certify; Cohen's procedure takes 100,000 samples of each."""
    epochs: int = 6
    seed: int = 0
    data_dir: Path | None = None
    """Where data sets lie; else $GRADREG_DATA, else the user's cache folder."""
    json: Path | None = None
    """A file to write all figures to."""
    data: str = "mnist5k"
    """The data set of the runs; without runs it is mnist5k."""
    undefended: Path | None = None
    """A run directory of `gradreg train`; without runs the digits' networks are trained here."""
    regularised: Path | None = None
    work: Path | None = None
    """A folder that keeps every finished measurement: repeated, the command goes on where it stopped."""

    def run(self) -> None:
        from rich.console import Console

        from bench.certify_command import Options, bench_certify

        options = Options(
            self.images,
            self.smoothing_images,
            self.epochs,
            self.seed,
            data=self.data,
            undefended=self.undefended,
            regularised=self.regularised,
        )
        bench_certify(options, self.data_dir, self.json, Console(), self.work)


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
    undefended: Path | None = None
    """A run directory of `gradreg train` to measure on, with --regularised; else two small networks are trained."""
    regularised: Path | None = None
    data: str = "mnist5k"
    """The data set of the two runs; cifar10 is measured at 0.5 (l2) and 8/255 (l∞)."""
    chunk: int = 20
    """Images that are attacked together; an interruption loses at most these of one contender."""
    work: Path | None = None
    """A folder that keeps what has ended: the same command goes on from there."""

    def run(self) -> None:
        from rich.console import Console

        from bench.attacks_command import Options, bench_attacks

        options = Options.parsed(
            self.images,
            self.seed,
            self.epochs,
            self.threats,
            self.peers,
            data=self.data,
            undefended=self.undefended,
            regularised=self.regularised,
            chunk=self.chunk,
        )
        bench_attacks(options, self.data_dir, self.json, Console(), self.work)


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


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    run(Bench, "python -m bench", arguments)


if __name__ == "__main__":
    main()
