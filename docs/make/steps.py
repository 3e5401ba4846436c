"""What `python -m bench training --json FILE` found, as the table of what a step costs."""

from pathlib import Path

from bench.training import LOADING, Cost, multiple
from docs.make.measured import written_by
from gradreg.reading import read_json
from gradreg.report.tables.layout import Cell, Column, Row, Table


def steps_table(path: Path) -> Table:
    """One row per kind of step, as multiples of plain training."""
    with written_by("training", path):
        found = read_json(path)
        costs = [Cost(**each) for each in found["costs"]]
        options, machine = found["options"], found["machine"]
        layout = ", channels last" if options["channels_last"] else ""
        how = f"batch {options['batch_size']}, best of {options['rounds']} interleaved rounds, seed 0{layout}"
        where = f"{machine['processor']}, {options['threads']} thread(s), torch {machine['torch']}"
        commit, model = machine["commit"], options["model"]
    return Table(
        "steps",
        "What a step costs",
        f"A training step of the {model} network ({how}), as multiples of plain training. Measured at commit {commit}; "
        f"{where}.",
        tuple(Column(name, f"{name} over that of plain training.", "low") for name in ("time", "FLOPs", "peak memory")),
        tuple(
            Row(cost.name, tuple(Cell(multiple(value), value) for value in (cost.seconds, cost.flops, cost.memory)))
            for cost in costs
            if cost.name not in ("plain", LOADING)
        ),
        of="step",
    )
