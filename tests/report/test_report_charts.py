"""The page's charts and pictures: geometry against places worked out by hand, PNGs against Pillow."""

import io
import re
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from generated import generated
from PIL import Image

from gradreg.display.charts import Chart, Group, Series, _round_step, distances, fractions, linear, vertices
from gradreg.evaluation.record import Evaluation
from gradreg.report.charts import svg
from gradreg.report.charts.labels import Frame, Mark, overlap, placed
from gradreg.report.charts.selection import sections
from gradreg.report.comparison import Comparison
from gradreg.report.page import gallery
from gradreg.report.page import images as image_data
from gradreg.report.page.png import _encode
from handmade import handmade, renamed


def shown(section: str, *evaluations: Evaluation) -> list[Group]:
    return sections(Comparison.of(evaluations))[section]


def drawn(*series: Series, high: float = 2.0) -> str:
    return svg.draw(Chart("", linear("x", high, str), fractions("error"), series, ""))


def test_a_curve_passes_through_its_points() -> None:
    x = linear("x", 2.0, str)
    curve = Series("", [0.0, 1.0, 3.0], [0.0, 0.5, 1.0], "steps", 0)
    # Up at 1 to the half, then on to the right edge: what comes at 3 is beyond it.
    assert vertices(curve, x) == [(0, 0), (1, 0), (1, 0.5), (2, 0.5)]
    assert vertices(replace(curve, x=[0.0, 1.0], y=[0.0, 0.5], ends=True), x)[-1] == (1, 0.5)
    assert vertices(replace(curve, x=[0.0, 3.0], y=[0.0, 0.5], ends=True), x)[-1] == (2, 0)
    # The frame is from 52 to 406 and, for a drawing 300 high, from 34 to 256.
    assert 'd="M52 256H229V145H406"' in drawn(curve)


def test_the_curves_of_an_evaluation_are_drawn_where_they_belong() -> None:
    """l2 distances 0, 0.1 … 0.9 of ten images: from 0.5 on 40 % are right."""
    (group,) = shown("curves", handmade())
    chart = group.charts[1]
    data, frame = svg.readings(chart), svg._Frame.of(chart)
    assert data is not None
    attacks = data["series"][0]
    assert (attacks["name"], attacks["x"][5], attacks["y"][5]) == ("attacks", "0.500", "40.0 %")
    assert attacks["at"][5] == [pytest.approx(frame.across(0.5), abs=0.06), pytest.approx(frame.up(0.4), abs=0.06)]
    drawing = svg.draw(chart)
    assert f"H{attacks['at'][5][0]:g}V{attacks['at'][5][1]:g}" in drawing
    assert re.findall(r'class="line (\w+) c0"', drawing) == ["solid", "dashed", "dotted"]
    assert "attacks: 90.0 % at 0" in chart.alt
    assert chart.narrow is not None
    assert (chart.width, chart.narrow.width, chart.narrow.alt) == (880, 420, chart.alt)


@pytest.mark.parametrize(
    ("span", "most", "step"), [(1, 5, 0.2), (100, 5, 20), (0.9, 6, 0.2), (31, 6, 10), (12, 5, 2.5)]
)
def test_ticks_are_round(span: float, most: int, step: float) -> None:
    assert _round_step(span, most) == pytest.approx(step)


def test_linf_distances_are_counted_in_255ths() -> None:
    axis = distances("linf", "l∞", 16.5 / 255)
    assert [name for _, name in axis.ticks] == ["0", "5", "10", "15"]
    assert axis.ticks[1][0] == pytest.approx(5 / 255)
    assert axis.say(8 / 255) == "8.00/255"


def test_distances_are_in_the_unit_of_the_data_sets_radii() -> None:
    """Digits are compared at 0.1, which nobody calls 25.5/255."""
    digits = replace(handmade(), data=replace(handmade().data, radii={"linf": (0.05, 0.1), "l2": (0.75, 1.5)}))
    for evaluation, in_255 in ((handmade(), True), (digits, False)):
        comparison = Comparison.of([evaluation])
        assert comparison.in_255("linf") == in_255
        assert not comparison.in_255("l2")
        chart = shown("curves", evaluation)[0].charts[0]
        assert chart.x.label == ("l∞ distance, in 1/255" if in_255 else "l∞ distance")
        assert [name for _, name in chart.guides] == (["2/255", "8/255"] if in_255 else ["0.05", "0.1"])


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.03, 0.1, ["2", "4", "6", "8", "10"]),
        (0.0, 1.0, ["0", "20", "40", "60", "80", "100"]),
        (0.57, 0.62, ["57", "58", "59", "60", "61", "62"]),
        (0.999, 0.999, ["98.75", "99", "99.25", "99.5", "99.75", "100"]),
        (0.0, 0.0, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
    ],
)
def test_axes_fit_the_data(low: float, high: float, ticks: list[str]) -> None:
    axis = fractions("robust accuracy", low, high)
    assert [name for _, name in axis.ticks] == ticks
    assert axis.low <= low <= high <= axis.high
    assert 0 <= axis.low < axis.high <= 1


def test_points_fill_their_axes() -> None:
    """On every frontier the models span at least a third of either axis, unless they hardly differ."""
    for group in shown("frontier", *generated()):
        for chart in group.charts:
            marks = [(each.x[0], each.y[0]) for each in chart.series if each.kind == "marks"]
            for axis, values in zip((chart.x, chart.y), zip(*marks, strict=True), strict=True):
                places = [axis.at(value) for value in values]
                assert all(0 <= place <= 1 for place in places)
                assert max(places) - min(places) > 1 / 3


def test_logarithmic_axes_have_a_few_ticks_and_an_edge() -> None:
    axis = distances("l2", "l2", 10.0, low=0.1)
    assert [name for _, name in axis.ticks] == ["0.1", "0.3", "1", "3"]
    assert axis.at(1.0) == pytest.approx(0.5)
    assert axis.at(0.0) == 0
    assert axis.say(0.0) == "0"
    assert len(distances("linf", "l∞", 9 / 255, low=5 / 255).ticks) == 5


def test_the_frontier_joins_what_nothing_beats() -> None:
    """The fourth model is worse than the third in both, so the line passes it by."""
    group, others = shown("frontier", *generated())
    assert [chart.title for chart in (*group.charts, *others.charts)] == [
        *("l∞ 8/255", "l∞ 8/255, the defended models closer", "l2 0.5", "l2 0.5, the defended models closer"),
        *("l∞ 2/255", "l2 0.25", "l2 1"),
    ]
    assert others.folded
    drawing = svg.draw(group.charts[2])
    line = re.search(r'class="rule solid" d="([^"]+)"', drawing)
    assert line is not None
    assert line[1].count("L") == 2
    assert "6.75×" in drawing
    assert shown("frontier", handmade()) == []


def test_undefended_models_alone_have_a_frontier() -> None:
    models = [renamed(handmade(objective="undefended"), name) for name in ("one", "two", "three")]
    groups = shown("frontier", *models)
    assert groups[0].charts
    assert all("closer" not in chart.title for group in groups for chart in group.charts)


@pytest.mark.parametrize("spread", [5.0, 40.0, 300.0])
@pytest.mark.parametrize("count", [1, 5, 12, 40])
def test_words_cover_nothing(spread: float, count: int) -> None:
    """Whatever the marks: no word over a mark or another word, none outside; few are left out where there is room."""
    frame = Frame(50, 410, 30, 260)
    source = torch.Generator().manual_seed(count)
    places = torch.rand(count, 2, generator=source) * torch.tensor([spread, min(spread, 180)]) + torch.tensor([60, 50])
    marks = [Mark(a, b, 5.0, f"model {i}, 2×") for i, (a, b) in enumerate(places.tolist())]
    labels = placed(marks, frame)
    boxes = [label.box for label in labels]
    assert not any(overlap(one, other) for one, other in combinations(boxes, 2))
    for left, top, right, bottom in boxes:
        assert frame.left <= left < right <= frame.right
        assert frame.top <= top < bottom <= frame.floor
        for mark in marks:
            assert not overlap((left, top, right, bottom), (mark.across - 5, mark.up - 5, mark.across + 5, mark.up + 5))
    assert len({id(label.mark) for label in labels}) == len(labels)
    assert len(labels) >= min(count, 5)
    if count == 1:
        assert not labels[0].far


def test_winners_are_counted() -> None:
    (group,) = shown("attacks", handmade())
    chart = group.charts[1]
    assert chart.title == "by hand, l2"
    assert chart.alt == "fmn: 50.0 % (5); apgd: 40.0 % (4); misclassified: 10.0 % (1)."
    assert svg.readings(chart) is None
    assert [text in svg.draw(chart) for text in ("fmn", "50.0 % (5)", 'class="bar muted"')] == [True] * 3


def test_violations_are_counted_where_they_are_drawn() -> None:
    evaluation = handmade()
    l2 = evaluation.threats["l2"]
    assert l2.bounded is not None
    broken = replace(
        l2, bounded=replace(l2.bounded, omega_bound=l2.attacked.distance + torch.tensor([0.0] * 8 + [1.0] * 2))
    )
    (group,) = shown("gaps", replace(evaluation, threats={"l2": broken}))
    assert group.charts[0].note == "9 images, 2 above the diagonal"
    assert svg.draw(group.charts[0]).count('class="hole"') == 1


def test_a_histogram_counts_every_broken_image() -> None:
    chart = shown("distances", handmade())[0].charts[0]
    assert chart.note == "1 misclassified, 1 unbroken of 10"
    data = svg.readings(chart)
    assert data is not None
    assert sum(int(count) for count in data["series"][0]["y"]) == 8
    assert data["series"][0]["x"][0] == "0/255 to 0.680/255"


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "L")])
def test_png_decodes_to_the_same_pixels(channels: int, mode: str) -> None:
    pixels = torch.randint(0, 256, (channels, 5, 7), generator=torch.Generator().manual_seed(0))
    with Image.open(io.BytesIO(_encode(pixels / 255))) as decoded:
        assert (decoded.mode, decoded.size) == (mode, (7, 5))
        found = torch.tensor(list(decoded.tobytes())).view(5, 7, -1).permute(2, 0, 1)
    expected = pixels if channels == 3 else pixels.double().mean(0, keepdim=True).round()
    assert int((found - expected).abs().max()) <= (0 if channels in (1, 3) else 1)  # a half is rounded to either side


def test_differences_are_magnified_as_far_as_they_stay_visible() -> None:
    assert gallery._magnification(torch.tensor([0.0, -8 / 255])) == 10  # 0.5 / 0.0314 = 15.9
    assert gallery._magnification(torch.tensor([0.009])) == 50
    assert gallery._magnification(torch.tensor([0.9])) == gallery._magnification(torch.zeros(2)) == 1


def test_large_pictures_are_reduced() -> None:
    walls, side = gallery.walls(Comparison.of(generated(models=2, images=20, side=224)))
    assert {len(wall.exhibits) for wall in walls} == {6}
    assert side == gallery._largest_side(24) < 224
    pictures = sum(len(uri) for wall in walls for e in wall.exhibits for uri in (e.clean, e.adversarial, e.difference))
    assert pictures < 1.05 * gallery._BUDGET
    assert gallery.walls(Comparison.of([handmade()]))[1] == 0


def test_the_pictures_of_many_models_are_fewer() -> None:
    few, _ = gallery.walls(Comparison.of(generated(models=1, images=60)))
    assert {len(wall.exhibits) for wall in few} == {6}, "as many as were kept"
    big = generated(models=10, images=60, kept=24)
    many, side = gallery.walls(Comparison.of(big))
    assert 6 <= len(many[0].exhibits) < 24
    assert side == 0
    assert {len(wall.exhibits) for wall in gallery.walls(Comparison.of(big[:1]))[0]} == {24}


def test_bounds_certificates_and_the_way_are_beside_the_pictures() -> None:
    (linf, l2), _ = gallery.walls(Comparison.of([handmade()]))
    assert linf.exhibits[0].bounds == (("L-bound", "0.637/255"), ("ω-bound", "1.27/255"))
    assert l2.exhibits[0].bounds[-1] == ("certified radius (σ = 0.25)", "0")
    assert l2.exhibits[0].way is None
    way = gallery.walls(Comparison.of(generated(1)))[0][0].exhibits[0].way
    assert way is not None
    # Margins −0.8 to 0.4 at 0, 0.25 … 1.5: from 20 + 19 · 0.8 to 20 − 19 · 0.4.
    assert way.path.startswith("M0.0 35.2L25.0 31.4L")
    assert way.path.endswith("L150.0 12.4")
    assert (
        way.words == "Margin of probabilities from the image, −0.80, to 1.5 times its adversarial perturbation, 0.40."
    )


def test_image_data_are_the_columns() -> None:
    """l2 distances 0, 0.1 … 0.9; in l∞ the last image is unbroken."""
    found = image_data.data(Comparison.of([handmade()]))
    model = found["models"][0]
    assert [threat["symbol"] for threat in found["threats"]] == ["l∞", "l2"]
    assert found["threats"][0]["in255"]
    assert found["threats"][0]["radii"][1] == [8 / 255, "8/255"]
    assert model["threats"]["1"]["distance"] == pytest.approx([i / 10 for i in range(10)])
    assert model["threats"]["0"]["distance"][-1] is None
    assert model["threats"]["1"]["omega"] == pytest.approx([i / 20 for i in range(10)])
    assert [found["attacks"][code] for code in model["threats"]["1"]["winner"][:3]] == ["clean", "fmn", "apgd"]
    assert model["smoothed"][0]["radius"][:5] == [0, 0, 0, 0, 0.25]
    assert "calibrated" not in model["threats"]["0"]
    assert image_data.embedded("</script>&") == '"\\u003c/script\\u003e\\u0026"'


def test_exhibits_say_what_is_shown() -> None:
    (_, wall), _ = gallery.walls(Comparison.of([handmade()]))
    first = wall.exhibits[0]
    assert (first.label, first.prediction, first.distance, first.index) == ("one", "two", "0.100", 7)


def test_words_stand_beside_their_marks() -> None:
    drawing = drawn(Series("a", [1], [0.5], "marks", 0, labels=("a",)))
    # The mark is at 52 + 354 / 2; its word begins right of it.
    assert re.findall(r'class="value start" x="([\d.]+)"', drawing) == ["237.6"]
    assert 'class="leader"' not in drawing
    assert '<g class="m0">' in drawing
