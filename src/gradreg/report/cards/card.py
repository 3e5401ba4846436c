"""The model card of a shipped network: what it is, intended use, robustness and provenance."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gradreg.config import tables, toml
from gradreg.diagnosis.flags import verdict
from gradreg.display.numbers import interval, significant
from gradreg.evaluation.record import Evaluation, ThreatRecord
from gradreg.objectives.base import describe
from gradreg.report.cards import curve
from gradreg.report.cards.figures import Remarks, figures, percent
from gradreg.report.page import provenance
from gradreg.runs.networks import CURVE
from gradreg.runs.settings import Config

_USE = "A demonstration network to attack, bound, certify, compare with and start from; not meant for deployment."
# Facts of an evaluation that other parts of the card have.
_ELSEWHERE = ("Source", "Network", "Training")


def write(evaluation: Evaluation, best: Mapping[str, Any], remarks: Remarks) -> str:
    """The card, as Markdown; `best` are the metrics of the epoch whose weights are shipped."""
    recipe = evaluation.subject.recipe or {}
    sections = [
        _opening(evaluation, recipe),
        limits(evaluation, remarks),
        results(evaluation),
        diagnosis(evaluation),
        _training(evaluation, recipe, best, remarks),
    ]
    return "\n\n".join(sections) + "\n"


def _opening(evaluation: Evaluation, recipe: Mapping[str, Any]) -> str:
    subject, data = evaluation.subject, evaluation.data
    shape = "×".join(str(side) for side in data.shape)
    network = f"A network `{subject.architecture}` of {subject.parameters:,} parameters"
    images = f"{data.name} ({len(data.classes)} classes, {shape} pixels)"
    training = f"trained for {_epochs(evaluation, recipe)} {describe(tables.build(Config, recipe).objective)}"
    return f"""# {subject.name}

{network} for {images}, {training}.

```python
import gradreg

model = gradreg.load("{subject.source}")  # in eval mode: pixels in [0, 1] in, logits out
```

The classes, in the order of the logits: {", ".join(data.classes)}."""


def limits(evaluation: Evaluation, remarks: Remarks, use: str = _USE) -> str:
    """What it may be used for, and what its figures do not say."""
    return "## Use and limits\n\n" + _listed(
        [
            *([use] if use else []),
            "Robust accuracy is empirical, not a proof: stronger attacks can only lower it.",
            f"It was not evaluated on images unlike those of {evaluation.data.name}, nor under perturbations larger "
            "than, or of another kind than, those below.",
            *remarks.note,
        ]
    )


def results(evaluation: Evaluation) -> str:
    """Accuracies with their intervals, and how to get them again."""
    made = provenance.of(evaluation)
    rows = [
        f"| {figure.what} | {percent(figure.right)} % | "
        f"{interval(figure.right.low, figure.right.high)} | {figure.right.n:,} |"
        for figure in figures(evaluation)
    ]
    facts = [f"{name}: {text}." for name, text in made.facts if name not in _ELSEWHERE]
    return "\n".join(
        [
            "## Results",
            "",
            "| | | 95 % interval | images |",
            "|---|---:|---:|---:|",
            *rows,
            "",
            "Clopper-Pearson intervals cover the choice of test images only, not the variance between training runs.",
            "",
            *(
                [f"![Robust accuracy against distance. {curve.words(evaluation)}]({CURVE})", ""]
                if evaluation.threats
                else []
            ),
            _listed([*facts, *made.notes]),
            # A network of somebody's Python has no command.
            *(["", "To reproduce them:", "", f"    {made.commands[-1]}"] if made.commands else []),
        ]
    )


def diagnosis(evaluation: Evaluation) -> str:
    """What the diagnosis says of each threat."""
    return "## Diagnosis\n\n" + _listed(_verdict(record) for record in evaluation.threats.values())


def _verdict(record: ThreatRecord) -> str:
    symbol = record.symbol
    if not record.flags:
        return f"{symbol}: not run."
    found = verdict(record.flags)
    raised = [flag for flag in record.flags if flag.severity != "info"]
    words = [f"{flag.severity}, {flag.code}: {flag.finding} {flag.advice}".rstrip() for flag in raised]
    return "\n  ".join([f"{symbol}: {found.word}." if raised else f"{symbol}: {found.word}. {found.reason}", *words])


def _training(evaluation: Evaluation, recipe: Mapping[str, Any], best: Mapping[str, Any], remarks: Remarks) -> str:
    subject = evaluation.subject
    run = replace(evaluation, subject=replace(subject, source=f"runs/{subject.name}"))
    machine = remarks.trained_on or best.get("machine")
    where = f" on {machine.rstrip('.')}" if machine else " on an unrecorded machine"
    held_out = f"{best['held_out']:,} training images" if best.get("held_out") else "training images"
    chosen = f"The weights are those of epoch {best['epoch']}, the best on {held_out} held out."
    return f"""## Training

It took {_duration(subject.hours)}{where}. {chosen} No test image was used. To reproduce it, with
`recipe.toml` as below:

    {provenance.of(run).commands[0]}

```toml
{toml.dumps(recipe).rstrip()}
```"""


def _duration(hours: float | None) -> str:
    if hours is None:
        return "an unrecorded time"
    return f"{significant(hours)} hours" if hours >= 1 else f"{significant(60 * hours)} minutes"


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _epochs(evaluation: Evaluation, recipe: Mapping[str, Any]) -> str:
    done, planned = evaluation.subject.epochs, recipe["epochs"]
    return f"{planned} epoch{'' if planned == 1 else 's'}" if done == planned else f"{done} of {planned} epochs"
