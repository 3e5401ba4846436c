"""`gradreg evaluate`."""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from gradreg.cli.arguments import Inline, ModelArguments, ModelName, say
from gradreg.evaluation.options import EvaluationOptions
from gradreg.evaluation.runner import evaluate
from gradreg.processes import speaks
from gradreg.runs.files import SAFE, is_weights
from gradreg.runs.networks import names

# The exit status when something is certainly wrong, in the model's code or in gradreg.
_PROVEN_BUG = 3


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a model: attacks, bounds, diagnosis and certificates, one row per image; the same command resumes.

    Exit status 0, 3 if the diagnosis proves a bug, 130 after an interruption.
    """

    model: tyro.conf.Positional[ModelName]
    named: Annotated[ModelArguments, Inline] = field(default_factory=ModelArguments)
    options: Annotated[EvaluationOptions, Inline] = field(default_factory=EvaluationOptions)
    out: Path | None = None
    """The folder to write; default: RUN/evaluation or evaluations/NAME."""

    def run(self, console: Console | None = None) -> None:
        console, folder = console or Console(), self.out or _default_folder(self.model)
        try:
            with self.named.opened(self.model) as (opened, _):
                found = evaluate(
                    opened.model, opened.data, self.options, subject=opened.subject, folder=folder, console=console
                )
        except KeyboardInterrupt:
            if speaks():
                say(console, f"Interrupted; the same command continues from {folder}.")
            sys.exit(130)
        if speaks():
            say(console, f"The evaluation is in {folder}.")
        sys.exit(_PROVEN_BUG if found.proven_wrong() else 0)


def _default_folder(model: str) -> Path:
    """RUN/evaluation for a run (evaluation-last for its last weights), evaluations/NAME for anything else."""
    path = Path(model)
    # A folder that happens to have a shipped network's name is not what was evaluated.
    if path.is_dir() and ((path / "config.toml").is_file() or model not in names()):
        return path / "evaluation"
    if model.endswith(SAFE) and (path.parent / "config.toml").is_file():
        return path.parent / f"evaluation-{path.stem}"
    name = path.stem if is_weights(path) else model
    return Path("evaluations") / re.sub(r"[^\w.-]+", "-", name)
