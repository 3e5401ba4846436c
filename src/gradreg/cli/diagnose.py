"""What `gradreg diagnose` does: the flags as a table, the verdict, and an exit status for scripts."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from torch import Tensor, nn

from gradreg.bounds import sound_radius
from gradreg.diagnosis.diagnose import IMAGES, diagnose
from gradreg.diagnosis.flags import Flag, Severity, Verdict, is_proven_bug, verdict
from gradreg.errors import ConfigError
from gradreg.norms import ThreatName
from gradreg.penalty.passes import Model
from gradreg.storage import replacing

# 2 is a user's mistake, as for every command.
NO_SIGN, RAISED, PROVEN_BUG = 0, 1, 3
_MARK: dict[Severity, str] = {"info": "", "warning": "[yellow]warning[/yellow]", "error": "[red]error[/red]"}


def diagnose_named(
    model: str,
    *,
    data: str | None,
    images: int,
    seed: int,
    device: str,
    data_dir: Path | None,
    architecture: str | None,
    options: Sequence[str],
    console: Console,
    **rest: Any,
) -> int:
    """The same for a model and data by name, as `gradreg evaluate` takes them, on the test images that it would."""
    from gradreg.evaluation.material import select
    from gradreg.runs.opening import open_model_on

    with open_model_on(device, model, data, data_dir, architecture, options) as (opened, place):
        test = opened.data.test
        index = select(len(test), images, seed)
        x, y = test.floats(index).to(place), test.labels[index].to(place)
        name = opened.subject.name
        return carry_out(opened.model, x, y, console=console, name=name, images=images, seed=seed, **rest)


def carry_out(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    console: Console,
    name: str = "the model",
    threat: ThreatName = "linf",
    eps: float | None = None,
    topk: int = 1,
    seed: int = 0,
    images: int = IMAGES,
    output: Path | None = None,
    sound: bool = False,
) -> int:
    """Diagnose, print, and return the exit status; `output` is a JSON file for the flags and the verdict.

    With `sound`, radii that auto_LiRPA proves for the images are held against the attacks.
    """
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"{output} cannot be written: there is no folder {output.parent}.")
    columns = TextColumn("diagnosing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task("", total=None)

        def progress(done: int, total: int) -> None:
            bars.update(bar, completed=done, total=total)

        proved = _proved(model, x, y, threat) if sound else None
        flags = diagnose(
            model,
            x,
            y,
            threat=threat,
            eps=eps,
            topk=topk,
            seed=seed,
            images=images,
            sound=proved,
            progress=progress,
        )
    result = verdict(flags)
    console.print(flag_table(flags, f"{name}, {threat}, {min(images, len(x))} images"))
    _advise(flags, console)
    console.print(f"{result.word}. {result.reason}", highlight=False, soft_wrap=True, markup=False)
    if output is not None:
        _write(output, flags, result)
    return status(flags)


def _proved(model: Model, x: Tensor, y: Tensor, threat: ThreatName) -> Tensor:
    if not isinstance(model, nn.Module):
        raise ConfigError("Radii are proved of an nn.Module, but the model is a bare function: leave sound out.")
    return sound_radius(model, x, y, threat=threat)


def status(flags: list[Flag]) -> int:
    """0: no sign of masking; 1: suspicious or broken; 3: a certificate is contradicted, which is a bug for certain."""
    if is_proven_bug(flags):
        return PROVEN_BUG
    return RAISED if any(flag.severity != "info" for flag in flags) else NO_SIGN


def flag_table(flags: list[Flag], title: str) -> Table:
    """A row for every test, those that were passed too."""
    table = Table(title=title, title_style="")
    for heading in ("test", "", "finding"):
        table.add_column(heading, no_wrap=heading != "finding")
    for flag in flags:
        table.add_row(flag.code, _MARK[flag.severity], flag.finding)
    return table


def _advise(flags: list[Flag], console: Console) -> None:
    for flag in flags:
        if flag.advice:
            console.print(f"{flag.code}: {flag.advice}", highlight=False, soft_wrap=True, markup=False)


def _write(path: Path, flags: list[Flag], result: Verdict) -> None:
    content = {"verdict": asdict(result), "flags": [asdict(flag) for flag in flags]}
    with replacing(path) as aside:
        aside.write_text(json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
