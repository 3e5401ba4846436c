"""A result as a person meets it: a summary in at most ten lines of text, or as a table in a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import torch
from torch import Tensor

from gradreg.display.numbers import significant

# The title is one of them.
_LINES = 10
_WIDTH = 160


@dataclass(frozen=True)
class Summary:
    """A title and facts by name; those beyond ten lines are left out, and counted."""

    title: str
    facts: Sequence[tuple[str, str]] = ()

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The facts that there is room for; one without a value is no fact."""
        known = [(name, _short(text)) for name, text in self.facts if text]
        most = _LINES - 1
        return known if len(known) <= most else [*known[: most - 1], ("…", f"and {len(known) - most + 1} more")]

    def __str__(self) -> str:
        rows = self.rows
        widest = max((len(name) for name, _ in rows), default=0)
        return "\n".join([_short(self.title), *(f"  {name:<{widest}}  {text}" for name, text in rows)])

    def html(self) -> str:
        """A table for notebooks."""
        cells = "".join(
            f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(text)}</td></tr>'
            for name, text in self.rows
        )
        caption = f'<caption style="text-align:left"><b>{escape(_short(self.title))}</b></caption>'
        return f"<table>{caption}{cells}</table>"


class Shown:
    """What prints as its summary, and is a table in notebooks."""

    def summary(self) -> Summary:
        """Its facts in at most ten lines."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().html()


def images(count: int) -> str:
    """ "1 image", "12 images"."""
    return f"{count:,} image{'' if count == 1 else 's'}"


def spread(values: Tensor) -> str:
    """Median, mean and range of numbers; those that are not finite are left out, and counted."""
    known = values.detach().flatten().double()
    finite = known[known.isfinite()]
    if len(finite) == 0:
        return "not known" if len(known) else ""
    middle, low, high = (
        significant(number) if values.is_floating_point() else f"{number:,.0f}"
        for number in torch.stack([finite.median(), finite.min(), finite.max()]).tolist()
    )
    if len(known) == 1:
        return middle
    words = f"median {middle}, mean {significant(float(finite.mean()))}, {low} to {high}"
    left = len(known) - len(finite)
    return f"{words}; not known for {left:,}" if left else words


def counted(count: int, of: int) -> str:
    """ "3 of 12 (25.0 %)"; nothing where there are none."""
    return f"{count:,} of {of:,} ({100 * count / of:.1f} %)" if count else ""


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _WIDTH else plain[: _WIDTH - 1] + "…"
