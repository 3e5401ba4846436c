"""A valid call, and which odd values are valid in it too."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """Arguments that are valid together; odd values that are valid too, by argument, as `spoiled` names them.

    A value that is not listed must be refused, unless the hint allows it; one that is listed must be taken.
    """

    given: Callable[[], dict[str, Any]] = dict
    takes: dict[str, str] = field(default_factory=dict)
    of: Callable[[], Any] | None = None
    """For a method: its object."""
    needs: str = ""
    """A package without which the call itself is refused, after its arguments were checked."""
    nan: bool = False
    """NaN is one of its answers: beyond the radii that were looked at, say."""
    heavy: bool = False
    """What is taken takes seconds, and is tried by the slow tests."""
