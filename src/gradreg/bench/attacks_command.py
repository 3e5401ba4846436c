"""`gradreg bench attacks`: the measurements of `attacks` on the embedded digits, as tables and as JSON."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import get_args

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor, nn

from gradreg.bench.attacks import Group, half_radius, measure_group
from gradreg.bench.attacks_report import Report, distance_table, equal_table, radius_table
from gradreg.bench.peers import PEERS, Lengths, version
from gradreg.bench.record import machine, target_table, write_json
from gradreg.data import Images, load
from gradreg.digits import EPS, trained
from gradreg.errors import ConfigError
from gradreg.norms import ThreatName

# As many images choose the radius; they lie before those that are measured.
OTHERS = 100


@dataclass(frozen=True)
class Options:
    """How much is measured, and beside whom."""

    images: int = 100
    seed: int = 0
    epochs: int = 6
    threats: tuple[ThreatName, ...] = ("l2", "linf")
    peers: tuple[str, ...] = tuple(PEERS)
    lengths: Lengths = field(default_factory=Lengths)

    @classmethod
    def parsed(cls, images: int, seed: int, epochs: int, threats: str, peers: str) -> "Options":
        """From the command line, where several are written with commas."""
        norms, names = (tuple(filter(None, given.replace(" ", "").split(","))) for given in (threats, peers))
        for what, given, known in (("threat", norms, ("l2", "linf")), ("peer", names, tuple(PEERS))):
            unknown = [name for name in given if name not in known]
            if unknown:
                raise ConfigError(f"There is no {what} {', '.join(unknown)} to measure: there are {', '.join(known)}.")
        if not norms:
            raise ConfigError("There is no threat to measure: name l2, linf or both.")
        for name, value in (("images", images), ("epochs", epochs)):
            if value < 1:
                raise ConfigError(f"{name} is {value}, but it is at least 1.")
        return cls(images, seed, epochs, tuple(norm for norm in get_args(ThreatName) if norm in norms), names)


def bench_attacks(options: Options, data_dir: Path | None, output: Path | None, console: Console) -> Report:
    """Train both networks, measure, print each table once it is known, and write the JSON file last."""
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"{output} cannot be written: there is no folder {output.parent}.")
    digits = load("mnist5k", data_dir)
    assert isinstance(digits.train, Images)
    assert isinstance(digits.test, Images)
    groups: list[Group] = []
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("training")
        networks = {}
        for network, eps in (("undefended", 0.0), ("regularised", EPS)):
            progress.update(task, description=f"training the {network} network")
            networks[network] = _frozen(trained(digits.train, eps, options.epochs, options.seed))
        measured, others = chosen(list(networks.values()), digits.test.floats(), digits.test.labels, options.images)
        for network, model in networks.items():
            for threat in options.threats:
                radius = half_radius(model, *others, threat, options.seed)
                group = Group(network, threat, radius)
                common = {"peers": options.peers, "seed": options.seed, "sizes": options.lengths}
                for name in measure_group(group, model, *measured, **common):  # type: ignore[arg-type]
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
    with torch.no_grad():
        right = torch.stack([model(x).argmax(1) == y for model in models]).all(0).nonzero().flatten()
    if len(right) < count + 1:
        raise ConfigError(f"There are {len(right)} test images that both networks classify: take fewer with --images.")
    measured, others = right[-count:], right[:-count][-OTHERS:]
    return (x[measured], y[measured]), (x[others], y[others])


def _frozen(model: nn.Module) -> nn.Module:
    """Without weight gradients, which some peers would compute for nothing, in the layout that is fastest here."""
    model.requires_grad_(False)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model
