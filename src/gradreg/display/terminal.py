"""Pictures for a terminal: bars for fractions, and step functions that fall, in signs that any font has."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.text import Text

# Okabe and Ito's, which the colour-blind can tell apart; each line has a sign of its own besides.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_SIGNS, _PLAIN_SIGNS = "●▲◆■▼○", "ox*#v+"
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(fraction: float, width: int, line: int = 0, plain: bool = False) -> Text:
    """A bar of so many columns, exact to an eighth of one, with dots to its full length; with `plain` in ASCII.

    `line` decides the colour, as in `Curves`.
    """
    eighths = round(8 * width * min(max(fraction, 0.0), 1.0))
    full, part = divmod(eighths, 8)
    if plain:
        full = round(eighths / 8)
        drawn, rest = "#" * full, "." * (width - full)
    else:
        drawn = "█" * full + (_EIGHTHS[part] if part else "")
        rest = "·" * (width - len(drawn))
    return Text.assemble((drawn, _COLOURS[line % len(_COLOURS)]), (rest, "dim"))


@dataclass(frozen=True)
class Curves:
    """Fractions against a distance, one line of signs each, with axes and a legend."""

    title: str
    lines: Sequence[tuple[str, Callable[[float], float]]]
    """The name of each, and its fraction at a distance."""
    end: float
    """Where the axis of distances ends."""
    ticks: Sequence[tuple[float, str]]
    """Distances that are marked, in rising order."""
    width: int = 60
    height: int = 12

    def text(self, plain: bool = False) -> Text:
        """The picture; with `plain` in ASCII."""
        signs, upright, corner, level = (_PLAIN_SIGNS, "|", "+", "-") if plain else (_SIGNS, "│", "└", "─")
        grid: list[list[tuple[str, str]]] = [[(" ", "")] * self.width for _ in range(self.height + 1)]
        for column in range(self.width):
            for number, (_, fraction) in enumerate(self.lines):
                value = fraction(self.end * column / (self.width - 1))
                row = round((1 - value) * self.height)
                grid[row][column] = (signs[number % len(signs)], _COLOURS[number % len(_COLOURS)])
        picture = Text(f"{self.title}\n")
        for row, cells in enumerate(grid):
            quarter = row * 4 % self.height == 0
            picture.append(f"{100 - 100 * row // self.height:4d} % " if quarter else " " * 7, "dim")
            picture.append(upright, "dim")
            for sign, style in cells:
                picture.append(sign, style)
            picture.append("\n")
        picture.append(" " * 7 + corner + level * self.width + "\n", "dim")
        picture.append(" " * 7 + self._tick_names() + "\n", "dim")
        for number, (name, _) in enumerate(self.lines):
            picture.append(f"{' ' * 7 if number == 0 else '   '}")
            picture.append(signs[number % len(signs)], _COLOURS[number % len(_COLOURS)])
            picture.append(f" {name}")
        return picture

    def _tick_names(self) -> str:
        """Each below its place; one that would run into the one before is left out."""
        words = ""
        for value, name in self.ticks:
            start = max(0, 1 + round(value / self.end * (self.width - 1)) - len(name) // 2)
            if start > len(words) or not words:
                words = words.ljust(start) + name
        return words
