"""One call with one argument replaced: what came of it, and whether that is right."""

import math
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, _GeneratorContextManager, contextmanager, nullcontext
from dataclasses import fields, is_dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from arguments.call import Call
from arguments.calls import TAKEN
from arguments.spoiled import may_be, spoiled
from arguments.surface import Argument, Entry
from arguments.toys import Counting
from gradreg.errors import GradregError

Kind = Literal["all", "possible", "impossible"]
"""Which odd values: those that may be valid take a whole call."""

_SECONDS = 30
# What depends on the model: how many classes it has, which shapes it takes, where its logits are. It is asked once.
_ASKS = {
    ("y", "one too large"),
    ("y", "10**12"),
    ("y", "on another device"),
    ("labels", "one too large"),
    ("target", "one too large"),
    ("topk", "10**12"),
    ("x", "2×3 tensor"),
    ("classes", "[]"),
    ("noise", "10**12"),
}
# What takes a look at the model or the pixels, which waits until the package is known to be there.
_LOOKS = {"a NaN pixel", "an infinite pixel", "0 to 255", "one too large", "on another device"}
# When and where something was made.
_CIRCUMSTANCES = {"seconds", "origin", "batch_size", "settings", "limit", "block_size", "finish"}


class _Endless(BaseException):
    """A call that takes too long."""


def complaints(entry: Entry, call: Call, kind: Kind) -> Iterator[str]:
    """What is wrong with how it takes odd arguments, a line for each."""
    given = call.given()
    for argument in entry.arguments:
        for label, value in spoiled(entry.name, argument, given).items():
            if value is None and argument.name not in given and argument.default is None:
                continue  # the valid call itself
            possible = label in _taken(call, argument)[0] or may_be(argument, label)
            if kind == "all" or possible == (kind == "possible"):
                wrong = _complaint(entry, call, argument, label, value)
                if wrong:
                    yield f"{entry.name}({argument.name} = {label}): {wrong}"


def _complaint(entry: Entry, call: Call, argument: Argument, label: str, value: Any) -> str:
    taken, same = _taken(call, argument)
    try:
        with within(_SECONDS):
            result = run(entry, call, {argument.name: value})
    except GradregError as error:
        said, asked = str(error), Counting.calls
        if call.needs and call.needs in said:
            fine = label in taken or label in _LOOKS or may_be(argument, label)
            return "" if fine else f"not refused before {call.needs} is needed"
        if label in taken:
            return f"refused: {said}"
        if asked and (argument.name, label) not in _ASKS:
            return f"refused after {asked} forwards: {said}"
        return "" if is_sentence(said) else f"not one sentence: {said!r}"
    except _Endless:
        return f"not finished after {_SECONDS} s, {Counting.calls} forwards"
    except Exception as error:
        return f"{type(error).__name__} after {Counting.calls} forwards: {str(error)[:150]}"
    if label not in taken and not may_be(argument, label):
        return f"taken: {str(result)[:100]!r}"
    if label in same and not is_same(result, run(entry, call, {})):
        return f"another answer than that of the valid call: {str(result)[:150]!r}"
    return "" if call.nan or is_sound(result) else f"taken, and NaN came of it: {str(result)[:150]!r}"


def _taken(call: Call, argument: Argument) -> tuple[set[str], set[str]]:
    """The odd values that this argument may have, and those of them that change nothing."""
    taken, same = set(), set()
    words = call.takes.get(argument.name, TAKEN.get(argument.name, ""))
    for part in words.split(";"):
        labels = {each.strip() for each in part.removeprefix("same:").split(",")} - {""}
        taken |= labels
        same |= labels if part.startswith("same:") else set()
    return taken, same


def run(
    entry: Entry, call: Call, changed: Mapping[str, Any], around: AbstractContextManager[object] | None = None
) -> Any:
    """Call it, with warnings as errors, inside of `around`; forwards are counted from 0."""
    function = entry.function if call.of is None else getattr(call.of(), entry.name.rpartition(".")[2])
    arguments = {**call.given(), **changed}
    Counting.calls = 0
    with warnings.catch_warnings(), around or nullcontext():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "`torch.jit", DeprecationWarning)  # torch's own, where it compiles
        by_place = entry.name == "Pool.merge" or (entry.name.startswith("objectives.") and "at" in arguments)
        result = function(*arguments.values()) if by_place else function(**arguments)
        if isinstance(result, _GeneratorContextManager):
            with result as inner:
                return inner
        return result


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Stop what takes longer."""

    def stop(*_: object) -> None:
        raise _Endless

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_sentence(said: str) -> bool:
    """Whether an error is one line of words, of a length that people read."""
    return "\n" not in said and 10 < len(said) < 600 and "Traceback" not in said and " " in said


def is_sound(result: Any) -> bool:
    """Whether it holds no NaN, anywhere."""
    if isinstance(result, Tensor):
        return not result.is_floating_point() or not bool(result.detach().isnan().any())
    if isinstance(result, float | np.ndarray):
        return not np.isnan(result).any()
    return all(is_sound(part) for _, part in _parts(result))


def is_on_host(result: Any) -> bool:
    """Whether no part of it is a tensor on the meta device."""
    if isinstance(result, Tensor):
        return not result.is_meta
    return all(is_on_host(part) for _, part in _parts(result))


def is_same(one: Any, other: Any) -> bool:
    """Whether both say the same, up to rounding and the circumstances."""
    if isinstance(one, Tensor):
        return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-4, abs_tol=1e-5) or (math.isnan(one) and math.isnan(other))
    mine, others = list(_parts(one)), list(_parts(other))
    if not mine and not others:
        return type(one) is type(other) and (is_dataclass(one) or isinstance(one, type(None)) or one == other)
    return [name for name, _ in mine] == [name for name, _ in others] and all(
        is_same(a, b) for (_, a), (_, b) in zip(mine, others, strict=True)
    )


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """The parts of a record, a mapping or a list, by name or place, but for the circumstances."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, Mapping):
        found = list(value.items())
    elif isinstance(value, list | tuple):
        found = list(enumerate(value))
    elif is_dataclass(value):
        found = [(each.name, getattr(value, each.name)) for each in fields(value)]
    return [(name, part) for name, part in found if name not in _CIRCUMSTANCES]
