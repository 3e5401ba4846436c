"""Byte arrays from an untrusted pickle.

Python's unpickler calls whatever a file names, and can be kept busy for ever: hashing a key of tuples inside each other
takes exponential time. So the opcodes that make dicts, lists, strings, numbers and arrays of bytes are carried out
here, each in time and memory of its own size. All others are refused. Names are never looked up.
"""

from __future__ import annotations

import pickletools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradreg.data.files import damaged
from gradreg.errors import DataError

_ARRAY, _TYPE = ("numpy", "ndarray"), ("numpy", "dtype")
_MAKERS = (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"))

_IGNORED = ("PROTO", "FRAME")
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_OLD_STRINGS = ("STRING", "BINSTRING", "SHORT_BINSTRING")
_STRINGS = (
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
)  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_GETS = ("GET", "BINGET", "LONG_BINGET")
_MARK = object()


@dataclass
class PickledArray:
    """The state that a pickle gives for a numpy array, kept until its bytes are needed."""

    state: object = None

    def bytes(self) -> NDArray[np.uint8]:
        """The array, if it is one of bytes in C order; ValueError if it is anything else."""
        match self.state:
            case (int(), tuple(shape), _PickledType(name="u1"), False | 0, bytes(data)):
                if all(isinstance(size, int) and 0 <= size <= len(data) for size in shape):
                    return np.frombuffer(data, np.uint8).reshape(shape)
        raise ValueError("an array in it is not one of bytes")


@dataclass(frozen=True)
class _PickledType:
    """The name of a numpy dtype; byte order and flags, which follow as its state, do not matter to bytes."""

    name: object


@dataclass(frozen=True)
class _Name:
    """A name in the pickle; what it stands for is never looked up."""

    module: str
    name: str


class _RefusedError(Exception):
    """The pickle names something that holds no data."""


@dataclass
class _Machine:
    """A stack and a memo, as opcodes of a pickle expect them."""

    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self, data: bytes) -> Any:
        """What the pickle makes."""
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return self.stack.pop()
            self._step(opcode.name, argument)
        raise ValueError("it has no end")

    def _step(self, name: str, argument: Any) -> None:
        stack = self.stack
        if name in _NUMBERS or name in _STRINGS:
            stack.append(argument)
        elif name in _OLD_STRINGS:
            stack.append(argument.encode("latin1"))  # Python 2 wrote its strings as bytes
        elif name in _PUTS:
            self.memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif name in _GETS:
            stack.append(self.memo[argument])
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _TUPLES or name == "TUPLE":
            stack.append(tuple(self._popped(_TUPLES[name]) if name in _TUPLES else self._marked()))
        elif name == "MARK":
            stack.append(_MARK)
        elif name not in _IGNORED:
            self._build(name, argument)

    def _build(self, name: str, argument: Any) -> None:
        stack = self.stack
        match name:
            case "EMPTY_LIST" | "LIST":
                stack.append([] if name == "EMPTY_LIST" else self._marked())
            case "APPEND" | "APPENDS":
                items = self._popped(1) if name == "APPEND" else self._marked()
                _of(list, stack[-1]).extend(items)
            case "EMPTY_DICT" | "DICT":
                stack.append({} if name == "EMPTY_DICT" else _pairs(self._marked()))
            case "SETITEM" | "SETITEMS":
                items = self._popped(2) if name == "SETITEM" else self._marked()
                _of(dict, stack[-1]).update(_pairs(items))
            case "GLOBAL":
                stack.append(_known(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                stack.append(_known(*(_of(str, word) for word in self._popped(2))))
            case "REDUCE":
                made, given = self._popped(2)
                stack.append(_made(_of(_Name, made), _of(tuple, given)))
            case "BUILD":
                (state,) = self._popped(1)
                if isinstance(stack[-1], PickledArray):
                    stack[-1].state = state
                elif not isinstance(stack[-1], _PickledType):
                    raise ValueError("it gives a state to what has none")
            case _:
                raise ValueError(f"no data file needs the opcode {name}")

    def _popped(self, count: int) -> list[Any]:
        """The last values, none of which may be a mark."""
        if len(self.stack) < count:
            raise ValueError("it takes more than it made")
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        if any(value is _MARK for value in found):
            raise ValueError("it takes more than it made")
        return found

    def _marked(self) -> list[Any]:
        """Everything above the last mark."""
        for back, value in enumerate(reversed(self.stack)):
            if value is _MARK:
                found = self._popped(back)
                self.stack.pop()
                return found
        raise ValueError("it takes more than it made")


def load(data: bytes, source: str) -> dict[str, Any]:
    """The dictionary in a pickle of dicts, lists, strings, numbers and `PickledArray`s; keys become str."""
    try:
        content = _Machine().run(data)
    except _RefusedError as error:
        raise DataError(
            f"{source} names {error}, which no data file needs: it is refused and nothing in it was run."
        ) from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise damaged(source, error) from error
    if not isinstance(content, dict):
        raise damaged(source, "it holds no dictionary")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): content[key] for key in content}


def _known(module: str, name: str) -> _Name:
    if (module, name) not in (_ARRAY, _TYPE, *_MAKERS):
        raise _RefusedError(f"{module}.{name}"[:100])
    return _Name(module, name)


def _made(name: _Name, given: tuple[Any, ...]) -> PickledArray | _PickledType:
    if (name.module, name.name) in _MAKERS:
        return PickledArray()
    if (name.module, name.name) == _TYPE and given:
        first = given[0]
        return _PickledType(first.decode("latin1") if isinstance(first, bytes) else first)
    raise ValueError("it makes an array in another way than numpy does")


def _of(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"it has a {type(value).__name__} where a {kind.__name__} is needed")
    return value


def _pairs(items: list[Any]) -> dict[Any, Any]:
    """Keys and values in turn; keys are words or numbers, whose hashes take no time."""
    keys = items[::2]
    if len(items) % 2 or not all(isinstance(key, str | bytes | int) for key in keys):
        raise ValueError("a key in it is not a word")
    return dict(zip(keys, items[1::2], strict=True))
