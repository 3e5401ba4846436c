"""The page's opening: what each model's figures say, in words, and whether the diagnosis lets them stand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gradreg.config.fractions import radius_name
from gradreg.diagnosis.flags import Flag, Severity, verdict
from gradreg.evaluation.record import Evaluation, Examined
from gradreg.evaluation.shares import Share, share_of
from gradreg.norms import ThreatName
from gradreg.report.axes import distances, percent
from gradreg.report.compare import cost_ratio
from gradreg.report.layout import Cell
from gradreg.report.numbers import STANDARD_RADII, THREAT_SIGNS, clean_error, mean, number, within

Level = Literal["clear", "unknown", "suspicious", "broken"]
_LEVELS: tuple[Level, ...] = ("clear", "unknown", "suspicious", "broken")
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class RobustError:
    """The error within a radius."""

    radius: str
    share: Share

    @property
    def text(self) -> str:
        """The share by itself."""
        return percent(self.share.value)

    @property
    def interval(self) -> str:
        """Its 95 % interval, as in the tables."""
        return f"{100 * self.share.low:.1f}–{100 * self.share.high:.1f} %"


@dataclass(frozen=True)
class Finding:
    """All that the opening says about one threat; `word` and `reason` are the diagnosis's."""

    threat: str
    errors: tuple[RobustError, ...]
    distance: Cell
    n: int
    level: Level
    word: str
    reason: str


@dataclass(frozen=True)
class Card:
    """One model; `level` is that of its worst threat."""

    name: str
    summary: str
    clean: Cell
    findings: tuple[Finding, ...]
    cost: str
    level: Level
    word: str


@dataclass(frozen=True)
class Sorted:
    """The flags of one model and threat: what was raised first, what was passed and what was not tested after it."""

    model: str
    threat: str
    raised: tuple[Flag, ...]
    passed: tuple[Flag, ...]
    left_out: tuple[Flag, ...]


def cards(evaluations: Sequence[Evaluation]) -> list[Card]:
    """One for each model, in the order given."""
    return [_card(evaluation, evaluations) for evaluation in evaluations]


def judged(flags: Iterable[Flag]) -> tuple[Level, str, str]:
    """The diagnosis's verdict. Where no test was made, that is said: nothing was found because nothing was sought."""
    flags = list(flags)
    if all(flag.code == "left-out" for flag in flags):
        return "unknown", "not tested for masking", "No test of the diagnosis was made, so the figures may mislead."
    found = verdict(flags)
    if found.word == "broken":
        return "broken", found.word, found.reason
    return "suspicious" if found.word == "suspicious" else "clear", found.word, found.reason


def sorted_flags(evaluations: Sequence[Evaluation]) -> list[Sorted]:
    """Grouped by model and threat, errors before warnings; the groups with the worst flags come first."""
    groups = [
        _sorted(evaluation.subject.name, examined)
        for evaluation in evaluations
        for examined in evaluation.threats.values()
    ]
    return sorted(groups, key=lambda group: _SEVERITIES.index(group.raised[0].severity if group.raised else "info"))


def leaders(evaluations: Sequence[Evaluation]) -> list[str]:
    """For each threat, at its largest radius: the model with the lowest error, and whether the next is told apart."""
    sentences = []
    for threat, radii in STANDARD_RADII.items():
        ranked = sorted(
            ((share_of(within(e.threats[threat].attacked.distance, radii[-1])), e) for e in _with(evaluations, threat)),
            key=lambda pair: pair[0].value,
        )
        if len(ranked) < 2:
            continue
        (first, best), (second, next_best) = ranked[:2]
        told_apart = first.high < second.low
        level, word, _ = judged(best.threats[threat].flags)
        one, other = f"“{best.subject.name}”", f"“{next_best.subject.name}”"
        if first.value == second.value:
            found = f"{one} and {other} share the lowest error, {percent(first.value)}"
        else:
            found = f"{one} has the lowest error, {percent(first.value)}; {other} follows with {percent(second.value)}"
        sentences.append(
            f"Within {THREAT_SIGNS[threat]} distance {radius_name(radii[-1])}, {found}"
            + ("." if told_apart else f", and on {first.n:,} images their 95 % intervals overlap.")
            + ("" if level == "clear" else f" But the diagnosis of {one} says: {word}.")
        )
    return sentences


def _card(evaluation: Evaluation, evaluations: Sequence[Evaluation]) -> Card:
    findings = tuple(_finding(evaluation, examined) for examined in evaluation.threats.values())
    worst = max(findings, key=lambda finding: _LEVELS.index(finding.level), default=None)
    level, word = (worst.level, worst.word) if worst else ("unknown", "no threat was examined")
    clean, cost = clean_error(evaluation), _cost(evaluation, evaluations)
    return Card(evaluation.subject.name, _summary(clean, findings, cost), clean, findings, cost, level, word)


def _finding(evaluation: Evaluation, examined: Examined) -> Finding:
    distance = examined.attacked.distance
    errors = tuple(
        RobustError(radius_name(radius), share_of(within(distance, radius)))
        for radius in STANDARD_RADII[examined.threat]
    )
    level, word, reason = judged(examined.flags)
    sign = THREAT_SIGNS[examined.threat]
    centre = mean(distance, "unbroken")
    if centre.value is not None:
        centre = replace(centre, text=distances(examined.threat, 1.0).say(centre.value))
    return Finding(sign, errors, centre, len(evaluation), level, word, reason)


def _summary(clean: Cell, findings: Sequence[Finding], cost: str) -> str:
    parts = [
        f"Under {finding.threat} attacks within {_listed([error.radius for error in finding.errors])} it errs on "
        f"{_listed([error.text for error in finding.errors])}."
        for finding in findings
    ]
    return " ".join([f"Gets {clean.text} of clean images wrong.", *parts, cost])


def _cost(evaluation: Evaluation, evaluations: Sequence[Evaluation]) -> str:
    hours, ratio = evaluation.subject.hours, number(cost_ratio(evaluation, evaluations))
    if hours is None:
        return "What its training cost is not known."
    if ratio.value is None or evaluation.subject.objective == "undefended":
        return f"Its training took {_duration(hours)}."
    return f"Its training took {_duration(hours)}, {ratio.text} times as long as without a defence."


def _duration(hours: float) -> str:
    for unit, seconds in (("hours", 3600), ("minutes", 60)):
        if 3600 * hours >= seconds:
            return f"{number(3600 * hours / seconds).text} {unit}"
    return f"{number(3600 * hours).text} seconds"


def _sorted(model: str, examined: Examined) -> Sorted:
    raised = sorted(
        (flag for flag in examined.flags if flag.severity != "info"),
        key=lambda flag: _SEVERITIES.index(flag.severity),
    )
    passed = [flag for flag in examined.flags if flag.severity == "info" and flag.code != "left-out"]
    left_out = [flag for flag in examined.flags if flag.severity == "info" and flag.code == "left-out"]
    return Sorted(model, THREAT_SIGNS[examined.threat], tuple(raised), tuple(passed), tuple(left_out))


def _with(evaluations: Sequence[Evaluation], threat: ThreatName) -> list[Evaluation]:
    return [evaluation for evaluation in evaluations if threat in evaluation.threats]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
