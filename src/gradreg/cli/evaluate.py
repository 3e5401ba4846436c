"""What `gradreg evaluate` does."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from gradreg.bounds.estimate import Method
from gradreg.config import toml
from gradreg.config.fractions import fraction
from gradreg.errors import ConfigError
from gradreg.evaluation.options import threats_from
from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.runner import evaluate
from gradreg.norms import ThreatName
from gradreg.processes import joined, speaks
from gradreg.runs.networks import names
from gradreg.runs.opening import SUFFIX, open_model

# The exit status when something is wrong for certain, in the model's code or in gradreg.
PROVEN_BUG = 3


def carry_out(
    model: str,
    *,
    data: str | None,
    threat: str,
    images: int,
    attacks: str,
    regularity: Method,
    calibration_images: int,
    smoothing: str,
    samples: int,
    autoattack: str = "",
    autoattack_version: str = "standard",
    seed: int,
    out: Path | None,
    device: str,
    data_dir: Path | None,
    batch_size: int,
    architecture: str | None,
    options: Sequence[str],
    console: Console,
) -> int:
    """Evaluate, and return the exit status: 0, 3 if the diagnosis proves a bug, 130 after an interruption."""
    folder, confirmed = out or default_folder(model), radii(autoattack)
    with joined(device) as processes:
        opened = open_model(
            model,
            data,
            data_dir=data_dir,
            device=processes.device,
            architecture=architecture,
            options=toml.override({}, options),
        )
        try:
            found = evaluate(
                opened.model,
                opened.data,
                threat=threats_from(threat),
                images=images,
                attacks=attacks.split(",") if "," in attacks else attacks,
                regularity=regularity,
                calibration_images=calibration_images,
                smoothing=numbers(smoothing),
                samples=samples,
                autoattack=confirmed,
                autoattack_version=autoattack_version,
                seed=seed,
                batch_size=batch_size,
                subject=opened.subject,
                folder=folder,
                console=console,
            )
        except KeyboardInterrupt:
            if speaks():
                _say(console, f"Interrupted; the same command continues from {folder}.")
            return 130
    if speaks():
        _say(console, f"The evaluation is in {folder}.")
    return _status(found)


def default_folder(model: str) -> Path:
    """RUN/evaluation for a run (evaluation-last for its last weights), evaluations/NAME for anything else."""
    path = Path(model)
    # A folder that happens to have a shipped network's name is not what was evaluated.
    if path.is_dir() and ((path / "config.toml").is_file() or model not in names()):
        return path / "evaluation"
    if model.endswith(SUFFIX) and (path.parent / "config.toml").is_file():
        return path.parent / f"evaluation-{path.stem}"
    name = path.stem if model.endswith(SUFFIX) else model
    return Path("evaluations") / re.sub(r"[^\w.-]+", "-", name)


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between."""
    try:
        return tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"{text!r} are no numbers with commas between, as in 0.25,0.5.") from None


def radii(text: str) -> Mapping[ThreatName, Sequence[float]]:
    """Radii by threat, as in linf=8/255,l2=0.5; whether they can be confirmed is seen later."""
    found: dict[str, list[float]] = {}
    for part in filter(str.strip, text.split(",")):
        threat, _, radius = part.partition("=")
        value = fraction(radius)
        if value is None:
            raise ConfigError(
                f"{part.strip()!r} is no threat and radius to confirm: write them as in --autoattack linf=8/255,l2=0.5."
            )
        found.setdefault(threat.strip(), []).append(value)
    return found  # type: ignore[return-value]


def _status(evaluation: Evaluation) -> int:
    return PROVEN_BUG if evaluation.proven_wrong() else 0


def _say(console: Console, sentence: str) -> None:
    console.print(sentence, highlight=False, soft_wrap=True, markup=False)
