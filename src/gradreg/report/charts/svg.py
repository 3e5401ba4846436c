"""Charts as SVG text for the page: they print, and need no script. What a script reads out goes along as plain data.

Everything is positioned here and coloured by class, so that the page's style sheet rules light, dark and print, and its
policy may forbid styles inside elements. matplotlib's own SVG needs those, ten times the time and more room.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from gradreg.display.charts import Axis, Chart, Key, Series, bars, vertices
from gradreg.report.charts.labels import Frame as LabelFrame
from gradreg.report.charts.labels import Mark, placed

_COLOURS = 7
_SHAPES = (
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",  # disc
    "M-3.2 -3.2h6.4v6.4h-6.4z",  # square
    "M0 -4.2L4 3H-4z",  # triangle
    "M0 -4.6L4.6 0L0 4.6L-4.6 0z",  # diamond
    "M0 4.2L4 -3H-4z",  # triangle on its tip
)


@dataclass(frozen=True)
class _Frame:
    """Where the axes of a chart are on the drawing."""

    x: Axis
    y: Axis
    left: float
    right: float
    top: float
    floor: float

    @classmethod
    def of(cls, chart: Chart) -> "_Frame":
        """With room for ticks, labels and names of guides where there are any."""
        longest = max((len(name) for _, name in chart.y.ticks), default=0)
        top = 34.0 if chart.y.label or chart.guides else 2.0
        bottom = 44.0 if chart.x.label else 2.0
        return cls(chart.x, chart.y, max(52.0, 16 + 6.6 * longest), chart.width - 14, top, chart.height - bottom)

    def across(self, value: float) -> float:
        """The place of a value from left to right."""
        return self.left + self.x.at(value) * (self.right - self.left)

    def up(self, value: float) -> float:
        """The place of a value from bottom to top; drawings count from the top."""
        return self.floor - self.y.at(value) * (self.floor - self.top)


def draw(chart: Chart) -> Markup:
    """The whole drawing. Its words for those who do not see it stand around it, in the page."""
    frame = _Frame.of(chart)
    series = (_of_model(each.model, _series(each, frame)) for each in chart.series)
    body = [_frame(frame), _guides(chart.guides, frame), *series]
    labels = _labels([series for series in chart.series if series.kind == "marks"], frame)
    return Markup('<svg viewBox="0 0 {} {}" aria-hidden="true" focusable="false">{}</svg>').format(
        _place(chart.width), _place(chart.height), Markup("").join([*body, labels])
    )


def swatch(key: Key) -> Markup:
    """How a legend shows its entry."""
    colour = "ink" if key.model is None else f"c{key.model % _COLOURS}"
    line = Markup('<path class="line {} {}" d="M1 6H27"/>').format(key.look, colour) if key.line else ""
    mark = "" if key.model is None else _mark(key.model, "solid", 14, 6, 1.0)
    return Markup('<svg class="swatch" viewBox="0 0 28 12" aria-hidden="true">{}{}</svg>').format(line, mark)


def readings(chart: Chart) -> dict[str, Any] | None:
    """Places and words of all points, read out as "name: y between x"; None if the chart has none."""
    frame, x, y = _Frame.of(chart), chart.x, chart.y
    spoken = []
    for series in chart.series:
        if not series.silent:
            points = [(a, b) for a, b in zip(series.x, series.y, strict=True) if a <= x.high]
            at = [[round(frame.across(a), 1), round(frame.up(b), 1)] for a, b in points]
            words = [x.say(a) for a, _ in points]
            if series.edges:
                words = [f"{x.say(a)} to {x.say(b)}" for a, b in zip(series.edges, series.edges[1:], strict=False)]
            spoken.append(
                {"name": series.name, "model": series.model, "at": at, "x": words, "y": [y.say(b) for _, b in points]}
            )
    curves = any(series.kind == "steps" for series in chart.series)
    return {"between": chart.between, "curves": curves, "series": spoken} if spoken else None


def _of_model(model: int | None, drawn: Markup) -> Markup:
    """What belongs to a model is hidden with it; the class is that of everything else of it on the page."""
    return drawn if model is None or not drawn else Markup('<g class="m{}">{}</g>').format(model, drawn)


def _place(value: float) -> str:
    """A coordinate as text, to a tenth of a unit."""
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _frame(frame: _Frame) -> Markup:
    left, right, floor = _place(frame.left), _place(frame.right), _place(frame.floor)
    parts = []
    for value, name in frame.y.ticks:
        up = frame.up(value)
        if frame.y.grid:
            parts.append(Markup('<path class="grid" d="M{} {}H{}"/>').format(left, _place(up), right))
        tick = Markup('<text class="tick y" x="{}" y="{}">{}</text>')
        parts.append(tick.format(_place(frame.left - 8), _place(up + 4), name))
    for value, name in frame.x.ticks:
        tick = Markup('<text class="tick x" x="{}" y="{}">{}</text>')
        parts.append(tick.format(_place(frame.across(value)), _place(frame.floor + 17), name))
    if frame.x.label:
        label = Markup('<path class="axis" d="M{} {}H{}"/><text class="label x" x="{}" y="{}">{}</text>')
        parts.append(label.format(left, floor, right, right, _place(frame.floor + 37), frame.x.label))
    if frame.y.label:
        parts.append(Markup('<text class="label y" x="0" y="10">{}</text>').format(frame.y.label))
    return Markup("").join(parts)


def _series(series: Series, frame: _Frame) -> Markup:
    points = [(frame.across(a), frame.up(b)) for a, b in zip(series.x, series.y, strict=True)]
    colour = "" if series.model is None else f"c{series.model % _COLOURS}"
    fill = "muted" if series.model is None else f"f{series.model % _COLOURS}"
    match series.kind:
        case "steps" | "line":
            corners = [(frame.across(a), frame.up(b)) for a, b in vertices(series, frame.x)]
            kind = "line" if colour else "rule"
            return Markup('<path class="{}" d="{}"/>').format(f"{kind} {series.look} {colour}".strip(), _path(corners))
        case "dots":
            # One path, so that pages stay small.
            path = "".join(f"M{_place(a)} {_place(b)}h0" for a, b in points)
            hole = Markup('<path class="hole" d="{}"/>').format(path) if series.look == "hollow" else ""
            return Markup('<path class="dots {} {}" d="{}"/>{}').format(series.look, colour, path, hole)
        case "marks":
            return Markup("").join(_mark(series.model or 0, series.look, a, b, series.size) for a, b in points)
        case "bars":
            path = "".join(
                f"M{_place(frame.across(low))} {_place(frame.floor)}V{_place(frame.up(height))}"
                f"H{_place(frame.across(high) - 1)}V{_place(frame.floor)}z"
                for low, high, height in bars(series)
            )
            return Markup('<path class="bar {}" d="{}"/>').format(fill, path)
        case "across":
            return Markup("").join(
                Markup('<path class="bar {}" d="M{} {}H{}v14H{}z"/><text class="value" x="{}" y="{}">{}</text>').format(
                    fill, *map(_place, (frame.left, b - 7, a, frame.left, a + 7, b + 4)), text
                )
                for (a, b), text in zip(points, series.labels, strict=True)
            )


def _path(corners: Iterable[tuple[float, float]]) -> str:
    """Through the corners; upright and level parts are written short."""
    path, last = "", ("", "")
    for a, b in corners:
        x, y = _place(a), _place(b)
        path += f"M{x} {y}" if not path else f"H{x}" if y == last[1] else f"V{y}" if x == last[0] else f"L{x} {y}"
        last = (x, y)
    return path


def _mark(model: int, look: str, across: float, up: float, size: float) -> Markup:
    """Five shapes and seven colours tell 35 models apart."""
    scale = "" if size == 1 else f" scale({size:.2f})"
    kind = f"mark hollow c{model % _COLOURS}" if look == "hollow" else f"mark f{model % _COLOURS}"
    return Markup('<path class="{}" transform="translate({} {}){}" d="{}"/>').format(
        kind, _place(across), _place(up), scale, _SHAPES[model % len(_SHAPES)]
    )


def _labels(series: Sequence[Series], frame: _Frame) -> Markup:
    """The words beside all marks, so that none overlaps another; a thin line leads to one that is further away."""
    owners: dict[int, int | None] = {}
    marks = []
    for each in series:
        words = [*each.labels, *[""] * (len(each.x) - len(each.labels))]
        for a, b, text in zip(each.x, each.y, words, strict=True):
            marks.append(Mark(frame.across(a), frame.up(b), 4.6 * each.size, text))
            owners[id(marks[-1])] = each.model
    room = LabelFrame(frame.left + 2, frame.right + 10, frame.top - 2, frame.floor - 2)
    drawn = []
    for label in placed(marks, room):
        left, top, right, bottom = label.box
        mark, near = label.mark, (min(max(label.mark.across, left), right), min(max(label.mark.up, top), bottom))
        line = Markup('<path class="leader" d="M{} {}L{} {}"/>').format(*map(_place, (mark.across, mark.up, *near)))
        word = Markup('<text class="value {}" x="{}" y="{}">{}</text>').format(
            label.anchor, _place(label.across), _place(label.up), mark.text
        )
        drawn.append(_of_model(owners[id(mark)], Markup("{}{}").format(line if label.far else "", word)))
    return Markup("").join(drawn)


def _guides(guides: Iterable[tuple[float, str]], frame: _Frame) -> Markup:
    """Upright lines; a name that would run into the one before is set a line higher."""
    drawn, last = [], -100.0
    for value, name in guides:
        at = frame.across(value)
        height = frame.top - 6 - (11 if at - last < 34 else 0)
        guide = Markup('<path class="guide" d="M{0} {1}V{2}"/><text class="guide-name" x="{0}" y="{3}">{4}</text>')
        drawn.append(guide.format(_place(at), _place(frame.top), _place(frame.floor), _place(height), name))
        last = at
    return Markup("").join(drawn)
