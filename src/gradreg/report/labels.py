"""Charts whose values are written beside what is drawn: bars with names, and points with remarks."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from gradreg.report.axes import BOTTOM, HEIGHT, RIGHT, TOP, WIDTH, Axis
from gradreg.report.charts import COLOURS, Chart, Series, drawing, place, readable, shape, shortened

_NAMES, _VALUES, _LINE = 118.0, 96.0, 24.0


@dataclass(frozen=True)
class Rank:
    """A bar with its name; what is not competing is drawn without colour."""

    name: str
    share: float
    text: str
    competes: bool = True


@dataclass(frozen=True)
class Remark:
    """A point with what is to be said beside it, and how large its mark is drawn."""

    name: str
    text: str
    x: float
    y: float
    model: int
    size: float = 1.0


def ranks(title: str, rows: Sequence[Rank], model: int, longest: float) -> Chart:
    """A bar from left to right for each name, with its value at the end; nothing is left to be read out."""
    body = Markup("").join(_bar(row, i, model, longest) for i, row in enumerate(rows))
    svg = Markup('<svg viewBox="0 0 {} {}" aria-hidden="true" focusable="false">{}</svg>').format(
        place(WIDTH), place(len(rows) * _LINE + 4), body
    )
    return Chart(title, svg, "; ".join(f"{row.name}: {row.text}" for row in rows) + ".", None)


def remarked(title: str, points: Sequence[Remark], x: Axis, y: Axis, path: Sequence[tuple[float, float]]) -> Chart:
    """A few points with a word beside each, and a line through those that no other beats."""
    line = " ".join(f"{'L' if i else 'M'}{place(x.across(a))} {place(y.up(b))}" for i, (a, b) in enumerate(path))
    words, marks = Markup(""), Markup("")
    for point, height in zip(points, apart([y.up(point.y) for point in points]), strict=True):
        across, up = x.across(point.x), y.up(point.y)
        right = across < WIDTH - RIGHT - 50
        words += Markup('<text class="value{}" x="{}" y="{}">{}</text>').format(
            "" if right else " left",
            place(across + (5 + 4 * point.size) * (1 if right else -1)),
            place(height + 4),
            point.text,
        )
        marks += Markup('<path class="mark f{}" transform="translate({} {}) scale({})" d="{}"/>').format(
            point.model % COLOURS, place(across), place(up), f"{point.size:.2f}", shape(point.model)
        )
    series = [Series(f"{point.name} {point.text}".strip(), [point.x], [point.y]) for point in points]
    told = " ".join(f"{p.name}: {y.say(p.y)} robust error, {x.say(p.x)} clean error, {p.text}." for p in points)
    body = Markup('<path class="frontier" d="{}"/>').format(line) + marks + words
    return Chart(title, drawing(body, x, y), told, readable(series, x, y, "robust error, clean error"))


def apart(heights: Sequence[float], gap: float = 13.0) -> list[float]:
    """The heights moved down as far as needed that no two words overlap, and all kept inside the frame."""
    moved, last = [0.0] * len(heights), TOP - gap
    for i in sorted(range(len(heights)), key=heights.__getitem__):
        last = moved[i] = max(heights[i], last + gap)
    excess = max(0.0, last - (HEIGHT - BOTTOM - 6))
    return [max(height - excess, TOP) for height in moved]


def _bar(row: Rank, i: int, model: int, longest: float) -> Markup:
    length = row.share / longest * (WIDTH - _NAMES - _VALUES)
    return Markup(
        '<text class="rank" x="{left}" y="{y}">{name}</text>'
        '<path class="bar {colour}" d="M{start} {top}h{length}v14h-{length}z"/>'
        '<text class="value" x="{right}" y="{y}">{text}</text>'
    ).format(
        left=place(_NAMES - 10),
        name=shortened(row.name, 17),
        colour=f"f{model % COLOURS}" if row.competes else "muted",
        start=place(_NAMES),
        top=place(i * _LINE + 5),
        length=place(length),
        right=place(_NAMES + length + 7),
        y=place(i * _LINE + 16),
        text=row.text,
    )
