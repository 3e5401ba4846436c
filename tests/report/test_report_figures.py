"""Curves are compared with counts; figures with themselves, drawn again."""

import subprocess
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
import torch

from gradreg.evaluation.record import Calibrated, Evaluation
from gradreg.report.charts.builders import accuracy_against_cost
from gradreg.report.charts.files import draw
from gradreg.report.charts.measures import Curve, curves, gaps, histograms, points
from gradreg.report.comparison import Comparison
from handmade import INF, confirmation, confirmed, handmade, renamed

ENDINGS = ("svg", "png", "pdf")
NAMES = {"figure-1-l2", "figure-1-linf", "frontier", "cost", "distances", "gap"}


def large(n: int, digits: int | None = None) -> Evaluation:
    """Many images with random distances, some misclassified, some unbroken; bounds are half the distances."""
    source = torch.Generator().manual_seed(n)
    distance = torch.rand(n, generator=source) * 2
    if digits is not None:
        distance = distance.round(decimals=digits)
    distance[: n // 10] = 0
    distance[n // 10 : n // 5] = INF
    evaluation = handmade()
    record = evaluation.threats["l2"]
    assert record.bounded is not None
    bound = distance.where(distance.isfinite(), 1.0) / 2
    return replace(
        evaluation,
        index=torch.arange(n),
        label=torch.zeros(n, dtype=torch.long),
        prediction=(distance == 0).long(),
        threats={
            "l2": replace(
                record,
                attacked=replace(record.attacked, distance=distance, winner=("fmn",) * n),
                bounded=replace(record.bounded, omega_bound=bound, lipschitz_bound=bound / 2),
            )
        },
        smoothing=(
            replace(
                evaluation.smoothing[0],
                radii=(),
                prediction=(torch.arange(n) % 4 == 0).long(),
                radius=bound.double(),
            ),
        ),
    )


def l2_curves(evaluation: Evaluation) -> list[Curve]:
    return curves(Comparison.of([evaluation]), "l2")


def at(curve: Curve, radius: float) -> float:
    """The accuracy at a radius: there the attacks succeed and bounds still hold. Distances are single precision."""
    if curve.kind == "empirical":
        reached = bisect_right(curve.x, radius * (1 + 2.0**-23))
    else:
        reached = bisect_left(curve.x, radius * (1 - 2.0**-23))
    return curve.y[max(reached - 1, 0)]


def write(
    evaluations: Sequence[Evaluation], folder: Path, endings: Sequence[str] = ("svg", "png", "pdf")
) -> list[Path]:
    return draw(Comparison.of(evaluations), folder, endings)


def counted(evaluation: Evaluation, curve: Curve, radius: float) -> float:
    record = evaluation.threats["l2"]
    assert record.bounded is not None
    right = {
        "empirical": record.attacked.distance > radius,
        "omega-bound": record.bounded.omega_bound >= radius,
        "calibrated": record.bounded.omega_bound / 0.9 >= radius,
        "certified": evaluation.certified(evaluation.smoothing[0], radius),
    }
    return float(right[curve.kind].double().mean())


@pytest.mark.parametrize("n", [10, 150])
def test_curves_are_exact_everywhere(n: int) -> None:
    """At every step, just beside it, and in between."""
    evaluation = large(n, digits=1)
    record = evaluation.threats["l2"]
    assert record.bounded is not None
    calibrated = Calibrated(record.bounded.omega_bound / 0.9, 0.05, 0.9, n // 2)
    bounded = replace(record.bounded, calibrated=calibrated)
    evaluation = replace(evaluation, threats={"l2": replace(record, bounded=bounded)})
    found = l2_curves(evaluation)
    assert [curve.kind for curve in found] == ["empirical", "omega-bound", "calibrated", "certified"]
    assert found[2].detail == "α = 0.05"
    for curve in found:
        places = [p for x in curve.x[1:] for p in (x - 0.01, x, x + 0.01)]
        assert all(at(curve, p) == pytest.approx(counted(evaluation, curve, p), abs=1e-12) for p in places if p < 1)


@pytest.mark.parametrize("n", [1000, 50_000])
def test_many_images_are_thinned_within_half_a_percent(n: int) -> None:
    evaluation = large(n)
    for curve in l2_curves(evaluation):
        assert len(curve.x) <= 201
        places = torch.linspace(0.001, 0.999, 60).tolist()
        errors = [abs(at(curve, p) - counted(evaluation, curve, p)) for p in places]
        assert max(errors) <= 0.005 + 1e-12
        assert list(curve.x) == sorted(curve.x)
        assert list(curve.y) == sorted(curve.y, reverse=True)


def test_a_bounds_curve_ends_where_nothing_is_known() -> None:
    """Certificates were tested at 0.25 and 0.5; that all fail beyond is not known, so it is not drawn."""
    certified = l2_curves(handmade())[-1]
    assert (certified.kind, certified.detail) == ("certified", "σ = 0.25")
    assert certified.x == (0.0, 0.25, 0.5)
    assert certified.y == (0.6, 0.3, 0.3)
    evaluation = handmade()
    record = evaluation.threats["l2"]
    assert record.bounded is not None
    capped = replace(record.bounded, omega_bound=record.bounded.omega_bound.clamp(max=0.25), eps=(0.25,), omega=(1,))
    omega = l2_curves(replace(evaluation, threats={"l2": replace(record, bounded=capped)}))[1]
    assert omega.x == pytest.approx((0, 0.05, 0.1, 0.15, 0.2, 0.25))
    assert omega.y == (0.9, 0.8, 0.7, 0.6, 0.5, 0.5)


def test_a_radius_in_single_precision_is_the_radius() -> None:
    evaluation = handmade()
    record = evaluation.threats["linf"]
    exact = replace(record, attacked=replace(record.attacked, distance=torch.full((10,), 8 / 255)), bounded=None)
    curve = curves(Comparison.of([replace(evaluation, threats={"linf": exact}, smoothing=())]), "linf")[0]
    assert at(curve, 8 / 255) == 0
    assert at(curve, 7.99 / 255) == 1


def test_points_have_accuracies_and_costs() -> None:
    plain = renamed(handmade(objective="undefended", hours=0.5), "plain")
    first, second = points(Comparison.of([handmade(), plain]), "l2", 0.5)
    assert (first.model, second.model, first.clean) == ("by hand", "plain", 0.9)
    assert first.robust == pytest.approx(0.4)
    assert (first.cost_ratio, first.hours) == (4.0, 2.0)


def test_what_autoattack_broke_counts_in_every_chart() -> None:
    """Our attacks break images 0 to 5 within 0.5; AutoAttack breaks 7 there, too."""
    comparison = Comparison.of([confirmed(handmade(), "l2", confirmation(0.5, [7]))])
    assert points(comparison, "l2", 0.5)[0].robust == pytest.approx(0.3)
    assert at(curves(comparison, "l2")[0], 0.5) == pytest.approx(0.3)
    assert histograms(comparison, "l2", bins=9)[0].counts[6] == 1, "0.6 alone: 0.7 was moved to 0.5"


def test_seeds_of_a_recipe_are_one_mark_at_their_mean() -> None:
    def seeded(seed: int, hours: float, nearest: float) -> Evaluation:
        evaluation = renamed(handmade(hours=hours), f"run-seed{seed}", recipe={"seed": seed})
        l2 = evaluation.threats["l2"]
        moved = replace(l2, attacked=replace(l2.attacked, distance=l2.attacked.distance + nearest))
        return replace(evaluation, threats={"l2": moved}, smoothing=())

    plain = renamed(handmade(objective="undefended", hours=0.5), "plain", recipe={"seed": 0, "objective": "none"})
    chart = accuracy_against_cost(Comparison.of([seeded(0, 1.0, 0.0), seeded(1, 2.0, 0.15), plain]), "l2")
    places = [(each.x[0], each.y[0]) for each in chart.series if each.kind == "marks"]
    # l2 distances are 0, 0.1 … 0.9, so four images are robust at 0.5, or six of those that are 0.15 further.
    assert places == [pytest.approx(place) for place in [(3.0, 0.5), (3.0, 0.9), (1.0, 0.4), (1.0, 0.9)]]
    stroke = next(each for each in chart.series if each.kind == "line" and each.model == 0)
    assert [*stroke.x, *stroke.y] == pytest.approx([3.0, 3.0, 0.4, 0.6])
    assert [key.name for key in chart.legend] == ["run", "plain"]


def test_histograms_count_every_image_once() -> None:
    evaluations = [large(1000), renamed(handmade(), "small")]
    found = histograms(Comparison.of(evaluations), "l2", bins=7)
    assert [h.model for h in found] == ["by hand", "small"]
    assert found[0].edges == found[1].edges
    for h in found:
        assert sum(h.counts) + h.misclassified + h.unbroken == h.n
    assert (found[0].misclassified, found[0].unbroken) == (100, 100)
    by_hand = histograms(Comparison.of([handmade()]), "l2", bins=3)[0]
    assert by_hand.edges == pytest.approx((0, 0.3, 0.6, 0.9), abs=1e-6)
    assert sum(by_hand.counts) == 9
    assert histograms(Comparison.of([handmade()]), "l1") == []


def test_gaps_are_thinned_but_the_worst_is_kept() -> None:
    evaluation = large(5000)
    record = evaluation.threats["l2"]
    assert record.bounded is not None
    bound = record.bounded.omega_bound.clone()
    bound[3333] = 50.0
    violated = replace(record, bounded=replace(record.bounded, omega_bound=bound))
    gap = gaps(Comparison.of([replace(evaluation, threats={"l2": violated})]), "l2")[0]
    assert gap.n == 4000
    assert len(gap.distance) == len(gap.omega) <= 300
    assert 50.0 in gap.omega
    assert gaps(Comparison.of([handmade()]), "l2")[0].omega == pytest.approx([i / 20 for i in range(1, 10)])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("figures")
    plain = renamed(handmade(objective="undefended", hours=0.5), "a $b$ <script> & 中文\n_{x}" + "long" * 20)
    return write([handmade(), plain], folder)


def test_figures_are_written_in_three_formats(drawn: list[Path]) -> None:
    assert {path.stem for path in drawn} == NAMES
    assert len(drawn) == 3 * len(NAMES)
    starts = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}
    assert all(path.read_bytes().startswith(starts[path.suffix]) for path in drawn)
    assert not [path for path in drawn[0].parent.iterdir() if path.name.startswith(".")]


def test_svg_files_hold_no_script_and_no_date(drawn: list[Path]) -> None:
    for path in drawn:
        if path.suffix == ".svg":
            root = ElementTree.fromstring(path.read_bytes())
            assert not [element for element in root.iter() if element.tag.endswith(("script", "date"))]


def test_the_same_evaluation_gives_the_same_bytes_whatever_the_users_style(tmp_path: Path) -> None:
    """Only l2 without bounds, so that it is quick: three figures."""
    evaluation = handmade()
    quick = replace(evaluation, threats={"l2": replace(evaluation.threats["l2"], bounded=None)}, smoothing=())
    first = write([quick], tmp_path / "first", ["svg", "pdf"])
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        before = dict(mpl.rcParams)
        second = write([quick], tmp_path / "second", ["svg", "pdf"])
        assert dict(mpl.rcParams) == before
    assert {path.stem for path in first} == {"figure-1-l2", "frontier", "distances"}
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_nothing_broken_and_nothing_attacked_can_be_drawn(tmp_path: Path) -> None:
    evaluation = handmade()
    record = evaluation.threats["l2"]
    safe = replace(record, attacked=replace(record.attacked, distance=torch.full((10,), INF)))
    written = write([replace(evaluation, threats={"l2": safe}), replace(handmade("b"), threats={})], tmp_path, ["svg"])
    assert {path.stem for path in written} == {"figure-1-l2", "frontier", "distances"}, "no cost, no gap"
    assert write([replace(evaluation, threats={})], tmp_path / "none") == []


def test_matplotlib_waits_until_something_is_drawn() -> None:
    code = "import gradreg.report.charts.files, gradreg.report.page.html, sys; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
