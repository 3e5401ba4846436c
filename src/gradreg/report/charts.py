"""Drawings as SVG text: they print, and need no script. What a script reads out of them goes along as plain data.

Everything is positioned in Python and coloured by class, so that the page's style sheet rules light, dark and print,
and its policy may forbid styles inside elements.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from gradreg.report.axes import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis

COLOURS = 7
_SHAPES = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",  # disc
    "M-3.2 -3.2h6.4v6.4h-6.4z",  # square
    "M0 -4.2L4 3H-4z",  # triangle
    "M0 -4.6L4.6 0L0 4.6L-4.6 0z",  # diamond
    "M0 4.2L4 -3H-4z",  # triangle on its tip
)


@dataclass(frozen=True)
class Series:
    """Points with a name; `style` is "solid", "dashed" or "dotted", `colour` and shape follow the model's number."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    model: int = 0
    style: str = "solid"
    ends: bool = False
    """Nothing is known beyond the last point, as for bounds; else the last step goes on."""


@dataclass(frozen=True)
class Chart:
    """A drawing, what it shows in a sentence for those who do not see it, and the points that can be read out."""

    title: str
    svg: Markup
    description: str
    data: dict[str, Any] | None
    note: str = ""
    """A second line under the title."""


def steps(series: Series, x: Axis, y: Axis) -> str:
    """The path of a step function through its points, cut off where the axis ends."""
    inside = [(a, b) for a, b in zip(series.x, series.y, strict=True) if a <= x.high]
    if not inside:
        return ""
    (first_x, first_y), *rest = inside
    path = f"M{place(x.across(first_x))} {place(y.up(first_y))}"
    for a, b in rest:
        path += f"H{place(x.across(a))}V{place(y.up(b))}"
    cut = len(inside) < len(series.x)
    return path + f"H{place(x.across(x.high))}" if cut or not series.ends else path


def curves(title: str, series: Sequence[Series], x: Axis, y: Axis, guides: Iterable[tuple[float, str]] = ()) -> Chart:
    """Step functions over each other, with upright lines at the values that tables quote."""
    drawn = [line for line in series if any(a <= x.high for a in line.x)]
    lines = Markup("").join(
        Markup('<path class="line {} c{}" d="{}"/>').format(line.style, line.model % COLOURS, steps(line, x, y))
        for line in drawn
    )
    if len({line.model for line in drawn}) > 1:
        lines += Markup("").join(_marks(line, x, y) for line in drawn)
    return Chart(title, drawing(_upright(guides, x) + lines, x, y), _told(drawn, x, y), readable(drawn, x, y, "at"))


def bars(title: str, heights: Series, edges: Sequence[float], x: Axis, y: Axis) -> Chart:
    """A histogram: bar i stands between edges i and i + 1."""
    floor, between = HEIGHT - BOTTOM, list(pairwise(edges))
    blocks = Markup("").join(
        Markup('<path class="bar f{}" d="M{} {}V{}H{}V{}z"/>').format(
            heights.model % COLOURS,
            place(x.across(low)),
            place(floor),
            place(y.up(height)),
            place(x.across(high) - 1),
            place(floor),
        )
        for (low, high), height in zip(between, heights.y, strict=True)
        if height
    )
    data = readable([heights], x, y, "at")
    data["series"][0]["x"] = [f"{x.say(low)} to {x.say(high)}" for low, high in between]
    tallest = max(range(len(between)), key=heights.y.__getitem__)
    told = f"{heights.name}: most, {y.say(heights.y[tallest])}, at {data['series'][0]['x'][tallest]}."
    return Chart(title, drawing(blocks, x, y), told, data)


def cloud(title: str, series: Sequence[Series], x: Axis, y: Axis, told: str) -> Chart:
    """One dot an image, and the diagonal where both values agree. A series is one path, so that pages stay small."""
    end = min(x.high, y.high)
    diagonal = Markup('<path class="guide" d="M{} {}L{} {}"/>').format(
        place(x.across(0)), place(y.up(0)), place(x.across(end)), place(y.up(end))
    )
    dots = Markup("")
    for part in series:
        path = "".join(f"M{place(x.across(a))} {place(y.up(b))}h0" for a, b in zip(part.x, part.y, strict=True))
        dots += Markup('<path class="dots {} c{}" d="{}"/>').format(part.style, part.model % COLOURS, path)
        if part.style == "hollow":
            dots += Markup('<path class="hole" d="{}"/>').format(path)
    return Chart(title, drawing(diagonal + dots, x, y), told, readable(series, x, y, "at a distance of"))


def shape(model: int) -> str:
    """The path of a model's mark; five shapes and seven colours tell 35 models apart."""
    return _SHAPES[model % len(_SHAPES)]


def shortened(name: str, most: int = 26) -> str:
    """The whole name is in the read-out and in the tables."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def thinned(length: int, most: int) -> list[int]:
    """Evenly spread positions, the first and the last among them."""
    if length <= most:
        return list(range(length))
    return [round(i * (length - 1) / (most - 1)) for i in range(most)]


def drawing(body: Markup, x: Axis, y: Axis) -> Markup:
    """What is drawn, in its frame. The words for those who do not see it stand around the drawing, in the page."""
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
    frame = Markup("").join(
        Markup('<path class="grid" d="M{} {}H{}"/><text class="tick y" x="{}" y="{}">{}</text>').format(
            place(LEFT), place(y.up(value)), place(right), place(LEFT - 8), place(y.up(value) + 4), name
        )
        for value, name in y.ticks
    )
    frame += Markup("").join(
        Markup('<text class="tick x" x="{}" y="{}">{}</text>').format(place(x.across(value)), place(floor + 17), name)
        for value, name in x.ticks
    )
    frame += Markup(
        '<path class="axis" d="M{0} {1}H{2}"/><text class="label x" x="{2}" y="{3}">{4}</text>'
        '<text class="label y" x="{5}" y="{6}">{7}</text>'
    ).format(place(LEFT), place(floor), place(right), place(HEIGHT - 7), x.label, place(0), place(10), y.label)
    return Markup('<svg viewBox="0 0 {} {}" aria-hidden="true" focusable="false">{}{}</svg>').format(
        place(WIDTH), place(HEIGHT), frame, body
    )


def _upright(guides: Iterable[tuple[float, str]], x: Axis) -> Markup:
    """Lines at some values; a name that would run into the one before is set a line higher."""
    drawn, last = Markup(""), -100.0
    for value, name in guides:
        if value <= x.high:
            at, height = x.across(value), TOP - 6 - (11 if x.across(value) - last < 34 else 0)
            drawn += Markup(
                '<path class="guide" d="M{0} {1}V{2}"/><text class="guide-name" x="{0}" y="{3}">{4}</text>'
            ).format(place(at), place(TOP), place(HEIGHT - BOTTOM), place(height), name)
            last = at
    return drawn


def _marks(line: Series, x: Axis, y: Axis) -> Markup:
    """The model's shape three times along its curve, at another place for each model."""
    points = list(zip(line.x, line.y, strict=True))
    places = [x.high * (third + 0.5 + 0.2 * (line.model % 5 - 2)) / 3 for third in range(3)]
    on = [(place, next((b for a, b in reversed(points) if a <= place), points[0][1])) for place in places]
    return Markup("").join(
        Markup('<path class="mark f{}" transform="translate({} {})" d="{}"/>').format(
            line.model % COLOURS, place(x.across(a)), place(y.up(b)), shape(line.model)
        )
        for a, b in on
    )


def readable(series: Sequence[Series], x: Axis, y: Axis, between: str) -> dict[str, Any]:
    """Places and words of all points, read out as "name: y between x"."""
    return {
        "between": between,
        "series": [
            {
                "name": line.name,
                "at": [
                    [round(x.across(a), 1), round(y.up(b), 1)]
                    for a, b in zip(line.x, line.y, strict=True)
                    if a <= x.high
                ],
                "x": [x.say(a) for a in line.x if a <= x.high],
                "y": [y.say(b) for a, b in zip(line.x, line.y, strict=True) if a <= x.high],
            }
            for line in series
        ],
    }


def _told(series: Sequence[Series], x: Axis, y: Axis) -> str:
    """Where each curve starts, where it is half-way along and where it ends."""
    sentences = []
    for line in series:
        inside = [(a, b) for a, b in zip(line.x, line.y, strict=True) if a <= x.high]
        picked = [inside[i] for i in thinned(len(inside), 3)]
        sentences.append(f"{line.name}: " + ", ".join(f"{y.say(b)} at {x.say(a)}" for a, b in picked) + ".")
    return " ".join(sentences)


def place(value: float) -> str:
    """A coordinate as text, to a tenth of a unit."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
