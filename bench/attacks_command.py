"""`python -m bench attacks`: the measurements of `attacks` on the embedded digits or two runs, as tables and JSON."""

from dataclasses import asdict

import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from torch import Tensor, nn

from bench.attacks import Group
from bench.attacks_report import Report, distance_table, equal_table, radius_table
from bench.contenders import Setting, half_radius
from bench.networks import of_digits, of_runs
from bench.options import DIGITS, NETWORKS, AttackOptions
from bench.parts import measure_group
from bench.peers import version
from bench.record import target_table, write_json
from gradreg.data import DataSet, Images, load
from gradreg.errors import ConfigError
from gradreg.ledger import Ledger
from gradreg.norms import ThreatName
from gradreg.provenance import machine

# As many images choose the radius where a data set has no usual one; they lie before those that are measured.
OTHERS = 100
RADII: dict[str, dict[ThreatName, float]] = {"cifar10": {"l2": 0.5, "linf": 8 / 255}}


def show(options: AttackOptions, console: Console) -> Report:
    """Get both networks, measure, print each table once it is known, and write the JSON file last."""
    data = load(options.data, options.data_dir)
    if not isinstance(data.test, Images):
        raise ConfigError(f"data must have images of one size, as {DIGITS} and cifar10 have; got {options.data}.")
    groups: list[Group] = []
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("networks")
        networks = _networks(options, data)
        measured, others = chosen(list(networks.values()), data.test.floats(), data.test.labels, options.images)
        for network, model in networks.items():
            for threat in options.norms:
                usual = RADII.get(options.data, {}).get(threat)
                radius = usual or half_radius(model, *others, threat, options.seed)
                group = Group(network, threat, radius)
                setting = Setting(model, threat, radius, options.peer_names, options.seed, options.lengths)
                work = None if options.work is None else options.work / f"{network}-{threat}"
                for name in measure_group(group, setting, *measured, chunk=options.chunk, work=work):
                    progress.update(task, description=name)
                groups.append(group)
                title = f"{network} network, {threat}, {len(measured[0])} images: distance over the best of all runs"
                console.print(distance_table(group.rows(), title))
    report = Report(
        [row for group in groups for row in group.rows()],
        [row for group in groups for row in group.radius_rows()],
        [row for group in groups for row in group.equal()],
        options.images,
    )
    console.print(radius_table(report.radius_rows, f"robust accuracy at one radius, {options.images} images"))
    if report.equal:
        console.print(equal_table(report.equal))
    console.print(target_table(report.targets()))
    if options.json is not None:
        versions = {peer: version(peer) for peer in options.peer_names}
        targets = [asdict(target) for target in report.targets()]
        about = {"options": options.facts(), "machine": machine(), "peers": versions}
        write_json(options.json, {**about, **asdict(report), "targets": targets})
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
        raise ConfigError(
            f"images must be below {len(right)}, the test images that both networks classify correctly; got {count}."
        )
    measured, others = right[-count:], right[:-count][-OTHERS:]
    return (x[measured], y[measured]), (x[others], y[others])


def _networks(options: AttackOptions, data: DataSet) -> dict[str, nn.Module]:
    """Without weight gradients, which some peers would compute for nothing."""
    nothing_kept = Ledger(None, {})
    found = of_runs(options) or {name: of_digits(name, data, options, nothing_kept) for name in NETWORKS}
    return {name: model.requires_grad_(False) for name, model in found.items()}
