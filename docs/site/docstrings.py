"""gradreg's docstrings are plain text with code between single backticks; Sphinx wants reStructuredText.

Stars, underscores and bars are symbols of the maths (‖∇ℓ‖_*), so everything outside of backticks is taken as it is.
"""

import re

from sphinx.application import Sphinx

_CODE = re.compile(r"`([^`]+)`")
_STRESSED = re.compile(r"(?<![\w_*])\*(\w+)\*(?![\w*])")
_ITEM = re.compile(r"^( *)(- |\d+\. )")


def setup(app: Sphinx) -> dict[str, bool]:
    """Convert every docstring that autodoc reads."""
    app.connect("autodoc-process-docstring", _convert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _convert(_app: Sphinx, _what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    lines[:] = "\n".join(converted(lines)).split("\n")


def converted(lines: list[str]) -> list[str]:
    """The lines as reStructuredText: words as they are, code as code."""
    found: list[str] = []
    # Code may go on over the end of a line, so paragraphs are converted as a whole.
    for paragraph in re.split(r"(\n{2,})", "\n".join(lines)):
        text = "".join(
            f"``{part}``" if position % 2 else _escaped(part) for position, part in enumerate(_CODE.split(paragraph))
        )
        found.extend(_with_lists(text.split("\n")))
    return found


def _escaped(text: str) -> str:
    """Every sign of reStructuredText as itself, but for the stars around *a word*."""
    parts = _STRESSED.split(text)
    return "".join(
        f"*{part}*" if position % 2 else re.sub(r"([\\*_|])", r"\\\1", part) for position, part in enumerate(parts)
    )


def _with_lists(lines: list[str]) -> list[str]:
    """A blank line before a list and around indented lines, which keep their ends, unless they continue an item."""
    spaced: list[str] = []
    kind = ""
    for line in lines:
        before = kind
        if _ITEM.match(line):
            kind = "item"
        elif line.startswith("  ") and before != "item":
            kind, line = "line", f"| {line.strip()}"
        elif not line.startswith(" "):
            kind = "text" if line else ""
        if kind != before and before and kind:
            spaced.append("")
        spaced.append(line)
    return spaced
