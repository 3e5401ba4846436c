"""`python -m bench attacks`: the measurements of `attacks` on the embedded digits or two runs, as tables and JSON."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor, nn

from bench.attacks import Group
from bench.attacks_report import Report, distance_table, equal_table, radius_table
from bench.contenders import Setting, half_radius
from bench.digits import EPS, trained
from bench.parts import Work, measure_group
from bench.peers import PEERS, Lengths, version
from bench.record import target_table, write_json
from gradreg.data import DataSet, Images, load
from gradreg.errors import ConfigError
from gradreg.norms import ThreatName
from gradreg.provenance import machine
from gradreg.runs import load as load_run

# As many images choose the radius where a data set has no usual one; they lie before those that are measured.
OTHERS = 100
RADII: dict[str, dict[ThreatName, float]] = {"cifar10": {"l2": 0.5, "linf": 8 / 255}}
DIGITS = "mnist5k"


@dataclass(frozen=True)
class Options:
    """How much is measured, on what, and beside whom."""

    images: int = 100
    seed: int = 0
    epochs: int = 6
    threats: tuple[ThreatName, ...] = ("l2", "linf")
    peers: tuple[str, ...] = tuple(PEERS)
    lengths: Lengths = field(default_factory=Lengths)
    data: str = DIGITS
    runs: tuple[str, str] | None = None
    """Directories of an undefended and a regularised network; None trains two on the digits."""
    chunk: int = 20
    """Images that are attacked together; an interruption loses no more of a contender than that."""

    @classmethod
    def parsed(
        cls,
        images: int,
        seed: int,
        epochs: int,
        threats: str,
        peers: str,
        *,
        data: str = DIGITS,
        undefended: Path | None = None,
        regularised: Path | None = None,
        chunk: int = 20,
    ) -> "Options":
        """From the command line, where several are written with commas."""
        norms, names = (tuple(filter(None, given.replace(" ", "").split(","))) for given in (threats, peers))
        for what, given, known in (("threat", norms, ("l2", "linf")), ("peer", names, tuple(PEERS))):
            unknown = [name for name in given if name not in known]
            if unknown:
                raise ConfigError(f"There is no {what} {', '.join(unknown)} to measure: there are {', '.join(known)}.")
        if not norms:
            raise ConfigError("There is no threat to measure: name l2, linf or both.")
        for name, value in (("images", images), ("epochs", epochs), ("chunk", chunk)):
            if value < 1:
                raise ConfigError(f"{name} is {value}, but it is at least 1.")
        if (undefended is None) != (regularised is None):
            raise ConfigError("Two networks are compared: give both --undefended and --regularised, or neither.")
        runs = None if undefended is None or regularised is None else (str(undefended), str(regularised))
        if runs is None and data != DIGITS:
            raise ConfigError(
                f"Networks on {data} are not trained here: give two runs with --undefended and --regularised."
            )
        ordered = tuple(norm for norm in get_args(ThreatName) if norm in norms)
        return cls(images, seed, epochs, ordered, names, data=data, runs=runs, chunk=chunk)


def bench_attacks(
    options: Options, data_dir: Path | None, output: Path | None, console: Console, work: Path | None = None
) -> Report:
    """Get both networks, measure, print each table once it is known, and write the JSON file last.

    What ends is kept in the folder `work`, and a later call with the same options goes on from there.
    """
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"{output} cannot be written: there is no folder {output.parent}.")
    data = load(options.data, data_dir)
    if not isinstance(data.test, Images):
        raise ConfigError(f"The images of {options.data} are of many sizes: measure on {DIGITS} or cifar10.")
    groups: list[Group] = []
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("networks")
        networks = _networks(options, data)
        measured, others = chosen(list(networks.values()), data.test.floats(), data.test.labels, options.images)
        for network, model in networks.items():
            for threat in options.threats:
                usual = RADII.get(options.data, {}).get(threat)
                radius = usual or half_radius(model, *others, threat, options.seed)
                group = Group(network, threat, radius)
                setting = Setting(model, threat, radius, options.peers, options.seed, options.lengths)
                for name in measure_group(group, setting, *measured, Work(options.chunk, work)):
                    progress.update(task, description=name)
                groups.append(group)
                title = f"{network} network, {threat}, {len(measured[0])} images: distance over the best of all runs"
                console.print(distance_table(group.rows(), title))
    report = Report(
        [row for group in groups for row in group.rows()],
        [row for group in groups for row in group.radius_rows()],
        [row for group in groups for row in group.equal()],
    )
    console.print(radius_table(report.radius_rows, f"robust accuracy at one radius, {options.images} images"))
    if report.equal:
        console.print(equal_table(report.equal))
    console.print(target_table(report.targets()))
    if output is not None:
        versions = {peer: version(peer) for peer in options.peers}
        targets = [asdict(target) for target in report.targets()]
        about = {"options": asdict(options), "machine": machine(), "peers": versions}
        write_json(output, {**about, **asdict(report), "targets": targets})
    return report


Pairs = tuple[Tensor, Tensor]


def chosen(models: list[nn.Module], x: Tensor, y: Tensor, count: int) -> tuple[Pairs, Pairs]:
    """The last images that all models classify correctly, to measure, and others before them, to choose radii.

    The defaults of our attacks were tuned on the first images of the test part; these are from its end.
    """
    right = torch.empty(0, dtype=torch.long)
    with torch.no_grad():
        for rows in reversed(torch.arange(len(x)).split(250)):
            both = torch.stack([model(x[rows]).argmax(1) == y[rows] for model in models]).all(0)
            right = torch.cat([rows[both], right])
            if len(right) >= count + OTHERS:
                break
    if len(right) < count + 1:
        raise ConfigError(f"There are {len(right)} test images that both networks classify: take fewer with --images.")
    measured, others = right[-count:], right[:-count][-OTHERS:]
    return (x[measured], y[measured]), (x[others], y[others])


def _networks(options: Options, data: DataSet) -> dict[str, nn.Module]:
    if options.runs is not None:
        return {
            name: _frozen(load_run(run)) for name, run in zip(("undefended", "regularised"), options.runs, strict=True)
        }
    assert isinstance(data.train, Images)
    return {
        name: _frozen(trained(data.train, eps, options.epochs, options.seed))
        for name, eps in (("undefended", 0.0), ("regularised", EPS))
    }


def _frozen(model: nn.Module) -> nn.Module:
    """Without weight gradients, which some peers would compute for nothing, in the layout that is fastest here."""
    model.requires_grad_(False)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model
