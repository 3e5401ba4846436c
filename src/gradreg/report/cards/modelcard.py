"""The card of a shipped network: what it is, what it is for, how robust it is and how all that came about."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gradreg.config import tables, toml
from gradreg.diagnosis.flags import verdict
from gradreg.evaluation.record import Evaluation, Examined
from gradreg.objectives import describe
from gradreg.report import making
from gradreg.report.cards.figures import Remarks, figures, percent
from gradreg.report.numbers import THREAT_SIGNS, significant
from gradreg.runs.settings import Config

# Facts of an evaluation that the card says elsewhere.
_ELSEWHERE = ("Source", "Network", "Training")


def write(evaluation: Evaluation, best: Mapping[str, Any], remarks: Remarks) -> str:
    """The card, as Markdown; `best` are the metrics of the epoch whose weights are shipped."""
    recipe = evaluation.subject.recipe or {}
    sections = [
        _opening(evaluation, recipe),
        _limits(evaluation, remarks),
        _figures(evaluation),
        _diagnosis(evaluation),
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

model = gradreg.load("{subject.name}")  # in eval mode: pixels in [0, 1] in, logits out
```

The classes, in the order of the logits: {", ".join(data.classes)}."""


def _limits(evaluation: Evaluation, remarks: Remarks) -> str:
    return "## Use and limits\n\n" + _listed(
        [
            "A demonstration network: something to attack, to bound, to certify, to compare with and to start from. It "
            "is not meant to decide anything that matters.",
            "Robust accuracy is what the attacks achieved, not a proof: a stronger attack can only lower it.",
            f"Nothing is known about images unlike those of {evaluation.data.name}, nor about changes that are larger "
            "than, or of another kind than, those below.",
            *remarks.notes,
        ]
    )


def _figures(evaluation: Evaluation) -> str:
    made = making.of(evaluation)
    rows = [
        f"| {figure.what} | {percent(figure.right)} % | "
        f"{100 * figure.right.low:.1f}–{100 * figure.right.high:.1f} % | {figure.right.n:,} |"
        for figure in figures(evaluation)
    ]
    facts = [f"{name}: {text}." for name, text in made.facts if name not in _ELSEWHERE]
    return "\n".join(
        [
            "## Figures",
            "",
            "| | | 95 % interval | images |",
            "|---|---:|---:|---:|",
            *rows,
            "",
            "Intervals are Clopper-Pearson's and speak of the choice of test images only, not of other training runs.",
            "",
            _listed([*facts, *made.notes]),
            "",
            "They are made again by",
            "",
            f"    {made.commands[-1]}",
        ]
    )


def _diagnosis(evaluation: Evaluation) -> str:
    return "## Diagnosis\n\n" + _listed(_verdict(examined) for examined in evaluation.threats.values())


def _verdict(examined: Examined) -> str:
    sign = THREAT_SIGNS[examined.threat]
    if not examined.flags:
        return f"{sign}: not made."
    found = verdict(examined.flags)
    raised = [flag for flag in examined.flags if flag.severity != "info"]
    words = [f"{flag.severity}, {flag.code}: {flag.finding} {flag.advice}".rstrip() for flag in raised]
    return "\n  ".join([f"{sign}: {found.word}." if raised else f"{sign}: {found.word}. {found.reason}", *words])


def _training(evaluation: Evaluation, recipe: Mapping[str, Any], best: Mapping[str, Any], remarks: Remarks) -> str:
    subject = evaluation.subject
    run = replace(evaluation, subject=replace(subject, source=f"runs/{subject.name}"))
    machine = remarks.trained_on or best.get("machine")
    where = f" on {machine.rstrip('.')}" if machine else "; the run did not write down the machine"
    held_out = f"{best['held_out']:,} training images" if best.get("held_out") else "training images"
    chosen = f"The weights are those of epoch {best['epoch']}, the best on {held_out} that were held out."
    return f"""## Training

It took {_duration(subject.hours)}{where}. {chosen} The test images had no part in it. To train it again, with
`recipe.toml` as below:

    {making.of(run).commands[0]}

```toml
{toml.dumps(recipe).rstrip()}
```"""


def _duration(hours: float | None) -> str:
    if hours is None:
        return "a time that is not known"
    return f"{significant(hours)} hours" if hours >= 1 else f"{significant(60 * hours)} minutes"


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _epochs(evaluation: Evaluation, recipe: Mapping[str, Any]) -> str:
    done, planned = evaluation.subject.epochs, recipe["epochs"]
    return f"{planned} epoch{'' if planned == 1 else 's'}" if done == planned else f"{done} of {planned} epochs"
