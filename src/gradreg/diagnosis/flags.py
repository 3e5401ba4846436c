"""What a test found, as data: one flag per test, and the verdict that follows from all of them."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from gradreg.checks.objects import check_several
from gradreg.checks.scalars import shown
from gradreg.codec import join
from gradreg.diagnosis.registry import TESTS
from gradreg.display.summary import Shown, Summary
from gradreg.errors import DataError
from gradreg.reading import json_table, one_sentence

Severity = Literal["info", "warning", "error"]
_Evidence = float | int | str
_Word = Literal["no sign of masking in these tests", "suspicious", "broken"]

# An adversarial image inside a radius that was proved to contain none: the proof or the model is wrong.
PROVEN_BUG = "certificate-contradicted"


@dataclass(frozen=True)
class Flag:
    """The result of one test.

    "info": passed, or not applicable. "warning": a sign of masked gradients. "error": attacks on this model, or the way
    it is used, cannot be trusted.

    `finding` is one sentence with the numbers of `evidence`; `advice` is empty where there is nothing to do.
    """

    code: str
    severity: Severity
    evidence: dict[str, _Evidence]
    finding: str
    advice: str = ""

    def __post_init__(self) -> None:
        if self.code not in TESTS:
            raise DataError(f"There is no flag {shown(self.code)}; expected one of {', '.join(TESTS)}.")
        if self.severity not in get_args(Severity):
            raise DataError(f"severity must be one of {', '.join(get_args(Severity))}; got {self.severity!r}.")

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "Flag":
        """Read what `to_json` wrote."""
        with one_sentence("This flag", "expected a line that to_json wrote"):
            found: Flag = join(cls, json_table(text, "This flag"), {})
        return found


@dataclass(frozen=True, repr=False)
class Verdict(Shown):
    """The flags in a word. No word says that gradients are *not* masked, since no test can show that."""

    word: _Word
    reason: str

    def summary(self) -> Summary:
        """The word and why."""
        return Summary(f"Verdict: {self.word}", [("because", self.reason)])


def verdict(flags: Iterable[Flag]) -> Verdict:
    """ "broken" if there is an error, "suspicious" if there is a warning."""
    flags = _flags(flags)
    if is_proven_bug(flags):
        return Verdict("broken", next(flag.finding for flag in flags if _proves(flag)))
    words: tuple[tuple[Severity, _Word], ...] = (("error", "broken"), ("warning", "suspicious"))
    for severity, word in words:
        raised = [flag for flag in flags if flag.severity == severity]
        if raised:
            more = f" (and {len(raised) - 1} more)" if len(raised) > 1 else ""
            return Verdict(word, f"{raised[0].code}: {raised[0].finding}{more}")
    made = sum(flag.code != "left-out" for flag in flags)
    return Verdict("no sign of masking in these tests", f"{made} tests were run and none failed.")


def is_proven_bug(flags: Iterable[Flag]) -> bool:
    """Whether a verified adversarial image lies within a radius proved for this classifier: a bug for certain."""
    return any(_proves(flag) for flag in _flags(flags))


def _flags(given: Iterable[Flag]) -> list[Flag]:
    words = "a list of Flags, as diagnose returns it"
    found = check_several("flags", given, words, DataError)
    if not all(isinstance(flag, Flag) for flag in found):
        raise DataError(f"flags must be {words}; got {shown(given)}.")
    return found


def graded(
    code: str,
    value: float,
    finding: str,
    *,
    warn: float | None = None,
    error: float | None = None,
    low: bool = False,
    **evidence: _Evidence,
) -> Flag:
    """A flag for a measured value: a warning or an error beyond a limit, above it, or below it where `low` is bad.

    NaN is beyond every limit.
    """

    def beyond(limit: float | None) -> bool:
        return limit is not None and (math.isnan(value) or (value < limit if low else value > limit))

    severity: Severity = "error" if beyond(error) else "warning" if beyond(warn) else "info"
    limit = error if severity == "error" or warn is None else warn
    limits = {} if limit is None else {"threshold": limit}
    return make(code, severity, finding, value=value, **limits, **evidence)


def make(code: str, severity: Severity, finding: str, **evidence: _Evidence) -> Flag:
    """A flag with the advice that belongs to its code; numbers that JSON does not have become words."""
    plain = {name: _plain(value) for name, value in evidence.items()}
    return Flag(code, severity, plain, finding, TESTS[code].advice if severity != "info" else "")


def left_out(tests: Iterable[str], reason: str) -> Flag:
    """Tests that were skipped, and why."""
    names = list(tests)
    return make("left-out", "info", f"Not tested, {reason}: {', '.join(names)}.", tests=", ".join(names), reason=reason)


def _plain(value: _Evidence) -> _Evidence:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _proves(flag: Flag) -> bool:
    return flag.code == PROVEN_BUG and flag.severity == "error"
