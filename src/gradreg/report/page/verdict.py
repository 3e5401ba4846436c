"""The page's opening: each model's accuracy and cost in words, with the verdict of the diagnosis."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gradreg.config.fractions import radius_name
from gradreg.diagnosis.flags import Flag, Severity, verdict
from gradreg.display.numbers import distance_name, interval, listed, percent
from gradreg.evaluation.record import Evaluation, ThreatRecord
from gradreg.evaluation.shares import Share, top_k
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import ball, clean_accuracy
from gradreg.report.tables.cells import mean, number
from gradreg.report.tables.layout import Cell

_Level = Literal["clear", "unknown", "suspicious", "broken"]
_LEVELS: tuple[_Level, ...] = ("clear", "unknown", "suspicious", "broken")
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class _Accuracy:
    """Clean accuracy, or that within a radius."""

    radius: str
    share: Share
    main: bool = False
    """Whether models are compared at this radius."""

    @property
    def text(self) -> str:
        """The fraction by itself."""
        return percent(self.share.value)

    @property
    def interval(self) -> str:
        """Its 95 % interval, as in the tables."""
        return interval(self.share.low, self.share.high)


@dataclass(frozen=True)
class _Finding:
    """What the opening says about one threat; `word` and `reason` are the diagnosis's."""

    threat: str
    number: int
    """Of the threat, among those of the report."""
    accuracies: tuple[_Accuracy, ...]
    distance: Cell
    n: int
    level: _Level
    word: str
    reason: str


@dataclass(frozen=True)
class _Card:
    """One model; `level` is that of its worst threat."""

    name: str
    summary: str
    clean: _Accuracy
    findings: tuple[_Finding, ...]
    cost: str
    ratio: Cell
    notes: tuple[str, ...]
    """What the evaluation says of itself, as what a randomised model does under fresh draws."""
    level: _Level
    word: str

    def at(self, number: int) -> _Accuracy | None:
        """At the radius that models are compared at, under the threat of that number; None if it was not evaluated."""
        found = (each for finding in self.findings if finding.number == number for each in finding.accuracies)
        return next((each for each in found if each.main), None)


@dataclass(frozen=True)
class _Sorted:
    """The flags of one model and threat: raised, passed, and tests that were not run."""

    model: str
    threat: str
    norm: str
    """The threat by its name."""
    raised: tuple[Flag, ...]
    passed: tuple[Flag, ...]
    left_out: tuple[Flag, ...]


def cards(comparison: Comparison) -> list[_Card]:
    """One for each model, in the order given."""
    return [_card(evaluation, comparison) for evaluation in comparison.evaluations]


def _diagnosis_verdict(flags: Iterable[Flag]) -> tuple[_Level, str, str]:
    """The diagnosis's verdict in levels; without tests it is unknown, since nothing was looked for."""
    flags = list(flags)
    if all(flag.code == "left-out" for flag in flags):
        return "unknown", "not tested for masking", "The diagnosis was not run, so the numbers may mislead."
    found = verdict(flags)
    if found.word == "broken":
        return "broken", found.word, found.reason
    return "suspicious" if found.word == "suspicious" else "clear", found.word, found.reason


def sorted_flags(comparison: Comparison) -> list[_Sorted]:
    """Grouped by model and threat, errors before warnings; the groups with the worst flags come first."""
    groups = [
        _sorted(evaluation.subject.name, record)
        for evaluation in comparison.evaluations
        for record in evaluation.threats.values()
    ]
    return sorted(groups, key=lambda group: _SEVERITIES.index(group.raised[0].severity if group.raised else "info"))


def leaders(comparison: Comparison) -> list[str]:
    """For each threat, at its usual radius: the highest robust accuracy, and whether intervals overlap."""
    sentences = []
    for threat in comparison.threats:
        radius = comparison.main_radius(threat)
        ranked = sorted(
            ((record.robust_accuracy(radius), evaluation) for evaluation, record in comparison.under(threat)),
            key=lambda pair: -pair[0].value,
        )
        if len(ranked) < 2:
            continue
        (first, best), (second, next_best) = ranked[:2]
        separate = second.high < first.low
        level, word, _ = _diagnosis_verdict(best.threats[threat].flags)
        one, other = f"“{best.subject.name}”", f"“{next_best.subject.name}”"
        if first.value == second.value:
            found = f"{one} and {other} have the highest robust accuracy, {percent(first.value)}"
        else:
            found = (
                f"{one} has the highest robust accuracy, {percent(first.value)}, then {other}, {percent(second.value)}"
            )
        found = top_k(found, comparison.topk)
        sentences.append(
            f"At {ball(comparison.symbol(threat), radius)}, {found}"
            + ("." if separate else f"; on {first.n:,} images their 95 % intervals overlap.")
            + ("" if level == "clear" else f" Diagnosis of {one}: {word}.")
        )
    return sentences


def refusals(comparison: Comparison) -> list[str]:
    """Why there are no bounds where there are none, or no calibrated ones."""
    return [
        f"{evaluation.subject.name}, {record.symbol}: {missing}"
        for evaluation in comparison.evaluations
        for record in evaluation.threats.values()
        if (missing := _missing(record))
    ]


def _missing(record: ThreatRecord) -> str:
    if record.bounded is None:
        return f"no bounds. {record.refusal}"
    return f"no calibrated bounds. {record.bounded.uncalibrated}" if record.bounded.uncalibrated else ""


def _card(evaluation: Evaluation, comparison: Comparison) -> _Card:
    findings = tuple(_finding(evaluation, record, comparison) for record in evaluation.threats.values())
    worst = max(findings, key=lambda finding: _LEVELS.index(finding.level), default=None)
    level, word = (worst.level, worst.word) if worst else ("unknown", "no threat was evaluated")
    clean, cost = _Accuracy("clean", clean_accuracy(evaluation)), _cost(evaluation, comparison)
    summary = top_k(_summary(clean, findings, cost), comparison.topk)
    ratio = number(comparison.cost_ratio(evaluation), unit="×")
    return _Card(evaluation.subject.name, summary, clean, findings, cost, ratio, evaluation.notes, level, word)


def _finding(evaluation: Evaluation, record: ThreatRecord, comparison: Comparison) -> _Finding:
    accuracies = tuple(
        _Accuracy(radius_name(radius), record.robust_accuracy(radius), radius == comparison.main_radius(record.threat))
        for radius in comparison.radii(record.threat)
    )
    level, word, reason = _diagnosis_verdict(record.flags)
    centre = mean(record.distance, "unbroken")
    if centre.value is not None:
        centre = replace(centre, text=distance_name(record.threat, centre.value, comparison.in_255(record.threat)))
    return _Finding(
        record.symbol, comparison.threats.index(record.threat), accuracies, centre, len(evaluation), level, word, reason
    )


def _summary(clean: _Accuracy, findings: Sequence[_Finding], cost: str) -> str:
    parts = [
        f"Robust accuracy at {finding.threat} {listed([each.radius for each in finding.accuracies])}: "
        f"{listed([each.text for each in finding.accuracies])}."
        for finding in findings
    ]
    return " ".join([f"Clean accuracy {clean.text}.", *parts, cost])


def _cost(evaluation: Evaluation, comparison: Comparison) -> str:
    hours, ratio = evaluation.subject.hours, number(comparison.cost_ratio(evaluation))
    if hours is None:
        return "Training time unknown."
    if ratio.value is None or evaluation.subject.objective == "undefended":
        return f"Trained in {_duration(hours)}."
    return f"Trained in {_duration(hours)}, {ratio.text} times as long as undefended."


def _duration(hours: float) -> str:
    for unit, seconds in (("hours", 3600), ("minutes", 60)):
        if 3600 * hours >= seconds:
            return f"{number(3600 * hours / seconds).text} {unit}"
    return f"{number(3600 * hours).text} seconds"


def _sorted(model: str, record: ThreatRecord) -> _Sorted:
    raised = sorted(
        (flag for flag in record.flags if flag.severity != "info"),
        key=lambda flag: _SEVERITIES.index(flag.severity),
    )
    passed = [flag for flag in record.flags if flag.severity == "info" and flag.code != "left-out"]
    left_out = [flag for flag in record.flags if flag.severity == "info" and flag.code == "left-out"]
    return _Sorted(model, record.symbol, record.threat, tuple(raised), tuple(passed), tuple(left_out))
