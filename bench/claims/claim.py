"""A claim of the paper, and what was found about it here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.options import ClaimOptions

Verdict = Literal["holds", "does not hold", "only there"]
"""Whether it holds here; "only there": it is about something that was not repeated here."""


@dataclass(frozen=True)
class Finding:
    """What was measured, in words with n and seeds, and what follows for the claim."""

    measured: str
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    """What the paper says, where, and the function that measures it."""

    key: str
    says: str
    where: str
    check: Callable[[ClaimOptions], Finding]


def holds(condition: bool) -> Verdict:
    """The verdict on a claim that was repeated here."""
    return "holds" if condition else "does not hold"
