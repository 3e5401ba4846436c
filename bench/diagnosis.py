"""What every test measures on honest and on broken models: `python -m bench diagnosis`.

The thresholds have to lie between the two. It prints the table of docs/diagnosis.md.
"""

from collections.abc import Iterable

import torch
from rich.console import Console
from torch import nn

from bench.digits import EPS, trained
from bench.options import DiagnosisOptions
from gradreg.data import Images, load
from gradreg.diagnosis.broken import broken_models
from gradreg.diagnosis.diagnose import diagnose
from gradreg.diagnosis.flags import Flag, verdict
from gradreg.provenance import machine

_MARK = {"info": "", "warning": " !", "error": " !!"}


def show(options: DiagnosisOptions, console: Console) -> None:
    """Measure, and print the table and where it was measured."""
    torch.set_num_threads(1)
    console.out("\n".join(calibrate(options)) + f"\n\n{options}\n{machine()}", highlight=False)


def calibrate(options: DiagnosisOptions) -> list[str]:
    """The lines of a Markdown table: a row for each test that has a value, a column for each model."""
    digits = load("mnist5k")
    assert isinstance(digits.train, Images)
    assert isinstance(digits.test, Images)
    x, y = digits.test.floats(slice(options.images)), digits.test.labels[: options.images]
    plain, robust = (trained(digits.train, eps, options.epochs, options.seed) for eps in (0.0, EPS))
    disguised = {name: model for name, (model, _) in broken_models(robust).items()}
    models: dict[str, nn.Module] = {"undefended": plain, "regularised": robust, **disguised}
    settings = {"threat": options.threat, "eps": options.eps, "seed": options.seed}
    found = {name: diagnose(model, x, y, **settings) for name, model in models.items()}  # type: ignore[arg-type]
    codes = [flag.code for flag in found["undefended"] if "value" in flag.evidence]
    columns = [["test", *codes, "verdict"]]
    columns += [[name, *_cells(codes, flags), verdict(flags).word.split(" of ")[0]] for name, flags in found.items()]
    rows = list(zip(*columns, strict=True))
    rows.insert(1, ("---",) * len(columns))
    return ["| " + " | ".join(row) + " |" for row in rows]


def _cells(codes: Iterable[str], flags: list[Flag]) -> list[str]:
    made = {flag.code: flag for flag in flags}
    return [_cell(made[code]) if code in made else "–" for code in codes]


def _cell(flag: Flag) -> str:
    return f"{float(flag.evidence['value']):.3g}{_MARK[flag.severity]}"
