"""Words beside marks: where each is set so that it covers no mark, no other word and stays inside the frame."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

_Anchor = Literal["start", "end", "middle"]

# Of the page's 12-pixel type, in units of the drawing; a little more than the mean sign, so that few words are cut.
_SIGN, _ABOVE, _BELOW = 6.7, 9.5, 3.5
# How far from a mark's edge a word is tried, nearest first.
_GAPS = (4.0, 14.0, 26.0, 40.0, 56.0, 74.0, 96.0)


@dataclass(frozen=True)
class Mark:
    """A disc on the drawing, and what is to be written beside it."""

    across: float
    up: float
    radius: float
    text: str


@dataclass(frozen=True)
class Frame:
    """Where words may be."""

    left: float
    right: float
    top: float
    floor: float


@dataclass(frozen=True)
class Label:
    """A word at its place; `mark` is what it belongs to, and `far` whether a line has to lead there."""

    mark: Mark
    across: float
    up: float
    anchor: _Anchor
    far: bool

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom."""
        width = _SIGN * len(self.mark.text)
        left = self.across - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.up - _ABOVE, left + width, self.up + _BELOW


def placed(marks: Sequence[Mark], frame: Frame) -> list[Label]:
    """A label for every mark with a word, as near as there is room; one that fits nowhere is left out.

    The most crowded marks choose first, so that the others make way.
    """
    labels: list[Label] = []
    worded = [mark for mark in marks if mark.text]
    crowd = {id(mark): sum(_near(mark, other) for other in worded) for mark in worded}
    for mark in sorted(worded, key=lambda each: -crowd[id(each)]):
        fitting = (label for label in _tries(mark) if _fits(label, marks, labels, frame))
        found = next(fitting, None)
        if found is not None:
            labels.append(found)
    return labels


def overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    """Whether two boxes share more than an edge."""
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _tries(mark: Mark) -> Iterator[Label]:
    for gap in _GAPS:
        away, far = mark.radius + gap, gap > _GAPS[0]
        slant = 0.7 * away
        yield Label(mark, mark.across + away, mark.up + 4, "start", far)
        yield Label(mark, mark.across - away, mark.up + 4, "end", far)
        yield Label(mark, mark.across, mark.up - away, "middle", far)
        yield Label(mark, mark.across, mark.up + away + 8, "middle", far)
        for down in (-1, 1):
            yield Label(mark, mark.across + slant, mark.up + down * slant + 4, "start", far)
            yield Label(mark, mark.across - slant, mark.up + down * slant + 4, "end", far)


def _fits(label: Label, marks: Sequence[Mark], labels: Sequence[Label], frame: Frame) -> bool:
    left, top, right, bottom = box = label.box
    inside = frame.left <= left and right <= frame.right and frame.top <= top and bottom <= frame.floor
    discs = ((m.across - m.radius, m.up - m.radius, m.across + m.radius, m.up + m.radius) for m in marks)
    return inside and not any(overlap(box, disc) for disc in discs) and not any(overlap(box, o.box) for o in labels)


def _near(one: Mark, other: Mark) -> bool:
    return abs(one.across - other.across) < 90 and abs(one.up - other.up) < 30
