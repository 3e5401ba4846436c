"""The norms of several evaluations: in one order, one norm under one name, and no two written alike."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gradreg.errors import DataError
from gradreg.evaluation.record import Evaluation, ThreatRecord
from gradreg.norms import THREATS


def prepared(evaluations: Sequence[Evaluation]) -> tuple[Evaluation, ...]:
    """The evaluations with their threats in the usual order, and norms that have the same symbol told apart."""
    _check_same(evaluations)
    order, symbols = in_order(evaluations), _symbols(evaluations)

    def shown(record: ThreatRecord) -> ThreatRecord:
        return (
            record if record.norm is None else replace(record, norm=replace(record.norm, symbol=symbols[record.threat]))
        )

    return tuple(
        replace(each, threats={threat: shown(each.threats[threat]) for threat in order if threat in each.threats})
        for each in evaluations
    )


def in_order(evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    """The names of all norms: those with short names as reports show them, then others as they come."""
    found = dict.fromkeys(threat for each in evaluations for threat in each.threats)
    return (*(threat for threat in THREATS if threat in found), *(threat for threat in found if threat not in THREATS))


def _check_same(evaluations: Sequence[Evaluation]) -> None:
    first: dict[str, tuple[Evaluation, ThreatRecord]] = {}
    for evaluation in evaluations:
        for threat, record in evaluation.threats.items():
            other, known = first.setdefault(threat, (evaluation, record))
            if record.norm is not None and known.norm is not None and not record.norm.same_as(known.norm):
                raise DataError(
                    f"{other.subject.name!r} and {evaluation.subject.name!r} were evaluated in two norms that are both "
                    f"called {threat}, so their distances cannot be compared; write one report for each."
                )


def _symbols(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """How each norm is written; where several are written alike, with the end of the name."""
    written: dict[str, str] = {}
    for evaluation in evaluations:
        for threat, record in evaluation.threats.items():
            written.setdefault(threat, record.symbol)
    taken = Counter([*written.values(), *(t.symbol for name, t in THREATS.items() if name not in written)])
    return {
        threat: symbol if threat in THREATS or taken[symbol] == 1 else f"{symbol} ({threat.rsplit('-', 1)[-1]})"
        for threat, symbol in written.items()
    }
