"""`gradreg diagnose`: the flags as a table, the verdict, and an exit status for scripts."""

import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from gradreg import progress, storage
from gradreg.bounds import sound_radius
from gradreg.cli.arguments import Inline, ModelArguments, ModelName, say
from gradreg.diagnosis import diagnose
from gradreg.diagnosis.flags import Flag, Severity, is_proven_bug, verdict
from gradreg.diagnosis.options import DiagnosisOptions
from gradreg.errors import ConfigError
from gradreg.evaluation.inputs import select
from gradreg.locks import lock_output
from gradreg.penalty.passes import Model
from gradreg.report.writing import check_output

# 2 is a user's mistake, as for every command.
NO_SIGN, RAISED, PROVEN_BUG = 0, 1, 3
_MARK: dict[Severity, str] = {"info": "", "warning": "[yellow]warning[/yellow]", "error": "[red]error[/red]"}


@dataclass(frozen=True)
class Diagnose:
    """Test a model for gradient masking. Exit status 0: no sign of it, 1: suspicious or broken, 3: a proven bug."""

    model: tyro.conf.Positional[ModelName]
    named: Annotated[ModelArguments, Inline] = field(default_factory=ModelArguments)
    options: Annotated[DiagnosisOptions, Inline] = field(default_factory=DiagnosisOptions)
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """A JSON file for the flags and the verdict."""
    sound: bool = False
    """Compare radii that are proved with attacks: needs auto_LiRPA, and minutes."""

    def run(self) -> None:
        if self.output is not None:
            check_output(self.output)
        with self.named.opened(self.model) as (opened, device):
            test = opened.data.test
            index = select(len(test), self.options.images, self.options.seed)
            x, y = test.floats(index).to(device), test.labels[index].to(device)
            name, options = opened.subject.name, self.options
            radii = opened.data.radii.get(options.norm.name)
            if options.eps is None and radii:
                options = replace(options, eps=radii[1])
            sys.exit(report(opened.model, x, y, options, Console(), name, output=self.output, sound=self.sound))


def report(
    model: Model,
    x: Tensor,
    y: Tensor,
    options: DiagnosisOptions,
    console: Console,
    name: str = "the model",
    *,
    output: Path | None = None,
    sound: bool = False,
) -> int:
    """Diagnose, print, write the JSON file, and return the exit status."""
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"{output} cannot be written: there is no folder {output.parent}.")
    with progress.bar("diagnosing", console) as bar:
        proved = _proved(model, x, y, options) if sound else None
        flags = diagnose(model, x, y, options, sound=proved, progress=bar)
    result = verdict(flags)
    console.print(_table(flags, f"{name}, {options.norm.name}, {min(options.images, len(x))} images"))
    for flag in flags:
        if flag.advice:
            say(console, f"{flag.code}: {flag.advice}")
    say(console, f"{result.word}. {result.reason}")
    if output is not None:
        with lock_output(output):
            storage.write_json(output, {"verdict": asdict(result), "flags": [asdict(flag) for flag in flags]})
    return _status(flags)


def _proved(model: Model, x: Tensor, y: Tensor, options: DiagnosisOptions) -> Tensor:
    if not isinstance(model, nn.Module):
        raise ConfigError("Radii can be proved for an nn.Module only; the model is a bare function: leave sound out.")
    return sound_radius(model, x, y, threat=options.norm)


def _status(flags: list[Flag]) -> int:
    if is_proven_bug(flags):
        return PROVEN_BUG
    return RAISED if any(flag.severity != "info" for flag in flags) else NO_SIGN


def _table(flags: list[Flag], title: str) -> Table:
    """One row per test, passed ones included."""
    table = Table(title=title, title_style="")
    for heading in ("test", "", "finding"):
        table.add_column(heading, no_wrap=heading != "finding")
    for flag in flags:
        table.add_row(flag.code, _MARK[flag.severity], flag.finding)
    return table
