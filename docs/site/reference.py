"""`::: gradreg.attack` on a line of its own stands for the documentation of that name, made from the code.

The sign is that of mkdocstrings, so that the pages say what they mean to other tools too.
"""

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from types import GenericAlias, UnionType

from sphinx.application import Sphinx
from sphinx.util import logging

from docs.site.docstrings import converted

_NAME = re.compile(r"^::: (gradreg[\w.]*)$", re.MULTILINE)
_log = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, bool]:
    """Replace names by autodoc's directives as pages are read."""
    app.connect("source-read", _replace)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def names_in(text: str) -> list[str]:
    """The names that a page documents."""
    return _NAME.findall(text)


def found(name: str) -> object:
    """The object of that name; `gradreg.bounds` is a function, but also the package that other names are in."""
    package, _, attribute = name.rpartition(".")
    return getattr(import_module(package), attribute)


def _replace(_app: Sphinx, page: str, source: list[str]) -> None:
    def directive(line: re.Match[str]) -> str:
        name = line[1]
        try:
            value = found(name)
        except (ImportError, AttributeError):
            _log.warning("there is no %s to document", name, location=page)
            return f"`{name}`"
        return f"```{{eval-rst}}\n.. {_directive(name, value)}\n```"

    source[0] = _NAME.sub(directive, source[0])


def _directive(name: str, value: object) -> str:
    if inspect.isclass(value):
        return f"auto{'exception' if issubclass(value, BaseException) else 'class'}:: {name}\n   :members:"
    if inspect.isroutine(value):
        return f"autofunction:: {name}"
    if not callable(value) or isinstance(value, GenericAlias | UnionType) or getattr(value, "__origin__", None):
        return f"py:data:: {name}"  # autodoc would show the docstring of its type
    lines = converted((inspect.getdoc(value) or "").splitlines())
    return "\n".join([f"py:function:: {name}{signature(value)}", "", *(f"   {line}".rstrip() for line in lines)])


def signature(function: Callable[..., object]) -> str:
    """The parameters and their defaults. Types would make lines of it, and docstrings say what is taken."""
    found = inspect.signature(function)
    bare = [each.replace(annotation=each.empty, default=_default(each.default)) for each in found.parameters.values()]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


class _Shown:
    """A default that is shown in other words than those of Python."""

    def __init__(self, words: str) -> None:
        self.words = words

    def __repr__(self) -> str:
        return self.words


def _default(value: object) -> object:
    if inspect.isfunction(value):
        return _Shown(value.__name__)
    return _Shown(f"{value:.4g}") if isinstance(value, float) else _Shown("…") if "<factory>" in repr(value) else value


def _signature(
    _app: Sphinx, what: str, _name: str, value: object, _options: object, given: str | None, _result: object
) -> tuple[str, str] | None:
    if given is None or what not in ("function", "method", "class", "exception") or not callable(value):
        return None
    shown = signature(value)
    return re.sub(r"^\((self|cls)(, )?", "(", shown), ""
