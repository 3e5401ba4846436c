"""What users call: every public function, class and method, found through the lists of public names, with its hints."""

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import gradreg
from gradreg.attacks.run import Attack
from gradreg.attacks.suite import SuiteName
from gradreg.runs import Settings

_ROOT = Path(gradreg.__file__).parent
# Functions whose other keywords are the parameters of something else.
_KEYWORDS: dict[str, Callable[..., Any]] = {
    "GradientPenalty": gradreg.regularized_loss,
    "attacks.EpsilonOracle": gradreg.attacks.AttackOptions,
    "fit": Settings,
    "data.batches": gradreg.data.Batches,
    "data.RectangularBatches": gradreg.data.FolderBatches,
    "smoothing.sweep": gradreg.certify,
}
# Imported for type checkers alone.
_ONLY_FOR_HINTS = {"SuiteName": SuiteName}
_SAME = inspect.Parameter.empty


@dataclass(frozen=True)
class Argument:
    """A parameter, and what may be passed for it by its hint."""

    name: str
    hint: Any
    default: Any = _SAME

    @property
    def required(self) -> bool:
        return self.default is _SAME


@dataclass(frozen=True)
class Entry:
    """A public function, class or method."""

    name: str
    function: Callable[..., Any]
    """For a method: of the class, so that it needs its object first."""
    arguments: tuple[Argument, ...]
    bound: bool = True


@cache
def entries() -> dict[str, Entry]:
    """All of them, by the shortest name that a user can write behind `gradreg.`."""
    found: dict[str, Entry] = {}
    seen: set[int] = set()
    for name, thing in sorted(_public(), key=lambda pair: (pair[0].count("."), pair[0])):
        if id(thing) not in seen:
            seen.add(id(thing))
            found |= {entry.name: entry for entry in _entries(name, thing)}
    return found


def _public() -> Iterator[tuple[str, Any]]:
    for stub in sorted(_ROOT.rglob("__init__.py*")):
        module = import_module(".".join(("gradreg", *stub.parent.relative_to(_ROOT).parts)))
        prefix = module.__name__.removeprefix("gradreg").removeprefix(".")
        names = _listed(stub) if stub.suffix == ".pyi" else getattr(module, "__all__", ())
        for name in names:
            thing = getattr(module, name)
            if callable(thing) and getattr(thing, "__module__", "").startswith("gradreg"):
                yield f"{prefix}.{name}".removeprefix("."), thing
    for name, thing in vars(gradreg.losses).items():
        if inspect.isfunction(thing) and thing.__module__ == "gradreg.losses" and not name.startswith("_"):
            yield f"losses.{name}", thing


def _listed(stub: Path) -> list[str]:
    body = ast.parse(stub.read_text()).body
    return [each.asname or each.name for node in body if isinstance(node, ast.ImportFrom) for each in node.names]


def _entries(name: str, thing: Any) -> Iterator[Entry]:
    if isinstance(thing, type) and issubclass(thing, BaseException):
        return
    if isinstance(thing, Attack):
        yield Entry(name, thing, (*_arguments(thing.__call__), *tuple(_arguments(thing.search))[1:]))
        return
    yield Entry(name, thing, tuple(_arguments(thing, name)))
    if isinstance(thing, type):
        for method, function in vars(thing).items():
            inner = getattr(function, "__func__", function)
            if inspect.isfunction(inner) and (not method.startswith("_") or method == "__call__"):
                found, of_object = getattr(thing, method), inspect.isfunction(function)
                own = tuple(_arguments(found))[1 if of_object else 0 :]
                if own:
                    yield Entry(f"{name}.{method}", found, own, bound=not of_object)


def _arguments(function: Callable[..., Any], name: str = "") -> Iterator[Argument]:
    hinted = function.__init__ if _plain_class(function) else function
    hints = _hints(hinted)
    for each in inspect.signature(function).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            known = inspect.signature(function).parameters
            if name in _KEYWORDS:
                more = [one for one in _arguments(_KEYWORDS[name]) if one.name not in known]
                yield from (one for one in more if one.default is not _SAME)
        else:
            yield Argument(each.name, hints.get(each.name, each.annotation), each.default)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The hints of a function; a name that is imported for type checkers alone may be anything."""
    known: dict[str, Any] = dict(_ONLY_FOR_HINTS)
    while True:
        try:
            return get_type_hints(function, localns=known, include_extras=True)
        except NameError as error:
            known[str(error.name)] = Any


def _plain_class(thing: Any) -> bool:
    return isinstance(thing, type) and not hasattr(thing, "__dataclass_fields__")
