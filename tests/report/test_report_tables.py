"""Every cell is counted by hand on evaluations of ten images; the paper's rows are compared with what it prints."""

import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gradreg.config.fractions import radius_name
from gradreg.display.numbers import significant
from gradreg.errors import DataError
from gradreg.evaluation.record import Calibrated, Evaluation, Seen
from gradreg.report.comparison import Comparison
from gradreg.report.tables.layout import Row, Table
from gradreg.report.tables.quoted import rows as paper_rows
from gradreg.report.tables.registry import tables
from handmade import INF, handmade, renamed


def built(*evaluations: Evaluation, paper: bool = False) -> dict[str, Table]:
    return {table.key: table for table in tables(Comparison.of(evaluations or [handmade()]), paper)}


def texts(table: Table, row: int = 0) -> list[str]:
    return [cell.text for cell in table.rows[row].cells]


def notes(row: Row) -> list[str]:
    return [cell.note for cell in row.cells]


def test_table_1_counts_distances_up_to_and_bounds_below_the_radius() -> None:
    """Distances 0, 0.01 … 0.08, ∞, a quarter and half of it as bounds: 2/255 is 0.0078, 8/255 is 0.0314."""
    table = built(handmade(), renamed(handmade(objective="undefended", hours=0.5), "plain"))["table-1"]
    assert texts(table) == ["10.0 %", "40.0 %", "90.0 %", "20.0 %", "70.0 %", "10.0 %", "40.0 %", "2.00", "4.00×"]
    assert notes(table.rows[0])[:2] == ["8.2–12.0 %, n = 1000", "12.2–73.8 %, n = 10"]
    assert [cell.value for cell in table.rows[0].cells] == pytest.approx([0.1, 0.4, 0.9, 0.2, 0.7, 0.1, 0.4, 2.0, 4.0])
    assert texts(table, 1)[-2:] == ["0.500", "1.00×"]


def test_a_radius_is_met_exactly() -> None:
    """An attack that stops at 8/255 has broken the image at 8/255; a bound of 8/255 holds there."""
    evaluation = handmade()
    record = evaluation.threats["linf"]
    assert record.bounded is not None
    exact = torch.full((10,), 8 / 255)
    at_radius = replace(
        record,
        attacked=replace(record.attacked, distance=exact),
        bounded=replace(record.bounded, omega_bound=exact, lipschitz_bound=exact),
    )
    table = built(replace(evaluation, threats={"linf": at_radius}))["table-1"]
    assert texts(table)[1:7] == ["0.0 %", "0.0 %", "0.0 %", "0.0 %", "0.0 %", "100.0 %"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"epochs": 4}, "–"),
        ({"architecture": "other"}, "–"),
        ({"machine": "another one"}, "–"),
        ({"objective": "adversarial"}, "–"),
        ({"hours": None}, "–"),
        ({"hours": 0.0}, "–"),
        ({}, "2.00×"),
    ],
)
def test_cost_is_compared_with_the_same_network_trained_plainly_as_long(
    change: dict[str, object], expected: str
) -> None:
    plain = renamed(handmade(objective="undefended", hours=1.0), "plain", **change)
    assert texts(built(handmade(), plain)["table-1"])[-1] == expected


def test_a_run_that_does_not_tell_its_machine_is_taken_for_one_of_the_machine_that_evaluated_it() -> None:
    plain = renamed(handmade(objective="undefended", hours=1.0), "plain")
    elsewhere = replace(plain, origin=replace(plain.origin, machine="another one"))
    assert texts(built(handmade(), elsewhere)["table-1"])[-1] == "–"
    there = renamed(elsewhere, "there", machine=handmade().origin.machine)
    assert texts(built(handmade(), elsewhere, there)["table-1"])[-1] == "2.00×"


def test_table_2_averages_over_all_images() -> None:
    """(0 + 0.1 + … + 0.9)/10 = 0.45, its half and its quarter."""
    assert texts(built()["table-2"]) == ["10.0 %", "0.113", "0.225", "0.450", "2.00"]
    assert [c.value for c in built()["table-2"].rows[0].cells][1:4] == pytest.approx([0.1125, 0.225, 0.45])


def test_table_2_leaves_unbroken_images_out_and_says_so() -> None:
    evaluation = handmade()
    record = evaluation.threats["l2"]
    distance = record.attacked.distance.clone()
    distance[8:] = INF
    unbroken = replace(record, attacked=replace(record.attacked, distance=distance))
    cell = built(replace(evaluation, threats={"l2": unbroken}))["table-2"].rows[0].cells[3]
    assert (cell.text, cell.note) == ("0.350", "n = 8, 2 unbroken left out")
    none = replace(record, attacked=replace(record.attacked, distance=torch.full((10,), INF)))
    cell = built(replace(evaluation, threats={"l2": none}))["table-2"].rows[0].cells[3]
    assert (cell.text, cell.value, cell.note) == ("–", None, "all 10 unbroken")


def test_table_3_is_the_regularity_in_l2() -> None:
    assert texts(built()["table-3"]) == ["0.550", "1.00", "0.300", "0.700"]


def test_omega_beyond_its_grid_is_not_made_up() -> None:
    evaluation = handmade()
    record = evaluation.threats["l2"]
    assert record.bounded is not None
    short = replace(record, bounded=replace(record.bounded, eps=(0.25, 0.6), omega=(0.1, 0.2)))
    found = built(replace(evaluation, threats={"l2": short}))
    assert texts(found["table-3"])[2:] == ["0.200", "–"]
    assert notes(found["table-3"].rows[0])[2:] == ["at 0.6", "ω known up to 0.6"]
    assert notes(found["table-5"].rows[0])[1].endswith("n = 10")
    assert notes(found["table-5"].rows[0])[2].endswith("n = 10; ω known up to 0.6")


def test_table_4_needs_the_right_class_and_the_radius() -> None:
    """Images 0 and 1 abstain, 2 and 3 have no radius, 4 to 6 have 0.25, 7 to 9 have 0.5; no more was tested."""
    table = built()["table-4"]
    assert table.rows[0].name == "by hand, σ = 0.25"
    assert texts(table) == ["40.0 %", "70.0 %", *["–"] * 6]
    assert notes(table.rows[0])[2] == "tested up to 0.5"
    evaluation = handmade()
    wrong = replace(evaluation.smoothing[0], prediction=(evaluation.label + 1) % 3)
    any_radius = replace(evaluation.smoothing[0], sigma=0.5, radii=())
    table = built(replace(evaluation, smoothing=(wrong, any_radius)))["table-4"]
    assert texts(table)[:2] == ["100.0 %", "100.0 %"]
    assert texts(table, 1) == ["40.0 %", "70.0 %", *["100.0 %"] * 6]


def test_table_5_is_the_share_of_bounds_below_the_radius() -> None:
    """Bounds 0, 0.05 … 0.45: the five up to 0.2 are below 0.25, the sixth is not."""
    assert texts(built()["table-5"]) == ["50.0 %", *["100.0 %"] * 5]


def test_robust_accuracies_have_their_intervals() -> None:
    table = built()["robust-accuracy"]
    assert [column.heading for column in table.columns][1:] == [
        "l∞ at 2/255",
        "l∞ at 8/255",
        "l2 at 0.25",
        "l2 at 0.5",
        "l2 at 1",
    ]
    assert texts(table) == ["90.0 %", "90.0 %", "60.0 %", "70.0 %", "40.0 %", "0.0 %"]
    assert notes(table.rows[0])[1] == "55.5–99.7 %, n = 10"
    assert notes(table.rows[0])[-1] == "0.0–30.8 %, n = 10"


def test_bounds_are_held_against_the_attacks() -> None:
    table = built()["bound-validity"]
    assert [row.name for row in table.rows] == [
        "by hand, l∞, L-bound",
        "by hand, l∞, ω-bound",
        "by hand, l2, L-bound",
        "by hand, l2, ω-bound",
    ]
    assert texts(table, 1) == ["0.0 %", "0.500", "0.500", "9", "heuristic"]
    assert table.rows[1].cells[0].note == "1 of 9 unbroken"
    evaluation = handmade()
    record = evaluation.threats["l2"]
    assert record.bounded is not None
    bound = record.attacked.distance.clone()
    bound[[3, 4, 5]] *= 2
    violated = replace(record, bounded=replace(record.bounded, omega_bound=bound))
    row = built(replace(evaluation, threats={"l2": violated}))["bound-validity"].rows[1]
    assert [cell.text for cell in row.cells][:3] == ["33.3 %", "2.00", "1.27"]


def test_winners_are_counted_by_threat() -> None:
    table = built()["winners"]
    assert [column.heading for column in table.columns] == ["misclassified", "fmn", "apgd", "unbroken"]
    assert texts(table, 0) == ["10.0 %", "40.0 %", "40.0 %", "10.0 %"]
    assert texts(table, 1) == ["10.0 %", "50.0 %", "40.0 %", "0.0 %"]


def test_costs() -> None:
    """Forwards 100 … 109 and backwards 50 … 59: 159 propagations per image."""
    table = built()["cost"]
    assert texts(table) == ["1,234", "2.00", "–", "159", "12.5", "1.50", "159", "12.5", "1.50", "3.00"]


def test_only_tables_with_figures_are_shown() -> None:
    evaluation = handmade()
    l2 = replace(evaluation.threats["l2"], bounded=None, refusal="No gradient.")
    everything = set(built())
    found = built(replace(evaluation, threats={"l2": l2}, smoothing=(), clean=None))
    assert {"table-2", "robust-accuracy", "winners", "cost", "origin"} <= set(found)
    assert everything - set(found) == {"table-1", "table-3", "table-4", "table-5", "bound-validity"}
    assert texts(found["table-2"]) == ["10.0 %", "–", "–", "0.450", "2.00"]
    assert notes(found["table-2"].rows[0])[0].endswith("n = 10")
    bare = set(built(replace(evaluation, threats={}, smoothing=())))
    assert {"cost", "origin"} <= bare
    assert not bare & {"table-1", "table-2", "table-3", "table-4", "table-5", "robust-accuracy", "winners"}


def top_five(name: str = "by hand") -> Evaluation:
    evaluation = handmade(name)
    return replace(evaluation, settings=replace(evaluation.settings, topk=5))


def test_top_k_errors_say_so_in_every_table() -> None:
    plain, five = built(), built(top_five())
    for key, table in plain.items():
        words = " ".join([table.title, table.caption, *(column.heading for column in table.columns)])
        assert "top-" not in words
        assert five[key].title == f"{table.title}, top-5"
        for one, other in zip(table.columns, five[key].columns, strict=True):
            assert other.heading == re.sub(r"\b(error|accuracy)\b", r"top-5 \1", one.heading)
        assert [texts(five[key], row) for row in range(len(table.rows))] == [
            texts(table, row) for row in range(len(table.rows))
        ]


def test_top_k_and_top_1_do_not_stand_in_one_column() -> None:
    with pytest.raises(
        DataError, match="'one' was evaluated for top-1 and 'two' for top-5, so their accuracies cannot"
    ):
        Comparison.of([handmade("one"), top_five("two")])
    assert Comparison.of([top_five()]).notes[0].startswith("Accuracy is top-5 accuracy")


def test_quoted_rows_have_the_same_k() -> None:
    """The paper's CIFAR-10 errors are top-1, its ImageNet errors top-5."""
    for key in ("table-1", "table-2", "table-3"):
        assert {row.name.split(":")[0] for row in paper_rows(key, "folder", 1)} == {"paper, CIFAR-10"}
        assert {row.name.split(":")[0] for row in paper_rows(key, "folder", 5)} == {"paper, ImageNet, top-5"}
        assert paper_rows(key, "cifar10", 5) == paper_rows(key, "folder", 3) == ()


def test_class_frequencies_count_right_classes_at_least_so_often() -> None:
    """Frequencies 0.1, 0.2 … 1.0; images whose smoothed class is wrong or unknown count at none."""
    assert "class-frequencies" not in built()
    evaluation = handmade()
    smoothed = evaluation.smoothing[0]
    seen = Seen(torch.arange(1, 11) / 10)
    right = smoothed.prediction == evaluation.label
    table = built(replace(evaluation, smoothing=(replace(smoothed, seen=seen),)))["class-frequencies"]
    expected = [float((right & (seen.frequency >= level)).double().mean()) for level in (0.5, 0.75, 0.9, 0.99, 0.999)]
    assert [cell.value for cell in table.rows[0].cells] == pytest.approx(expected)
    assert 0 < expected[-1] < expected[0]
    assert table.columns[0].heading == "p_A ≥ 0.5"


def with_calibrated(evaluation: Evaluation, bound: Tensor) -> Evaluation:
    record = evaluation.threats["l2"]
    assert record.bounded is not None
    bounded = replace(record.bounded, calibrated=Calibrated(bound, 0.05, 1.25, 9))
    return replace(evaluation, threats={"l2": replace(record, bounded=bounded)})


def test_calibrated_bounds_have_a_table_of_their_own() -> None:
    """Distances 0, 0.1 … 0.9. The bounds are 0.8 of them, but for the last, which is violated."""
    assert "calibrated" not in built()
    bound = 0.8 * handmade().threats["l2"].attacked.distance
    bound[-1] = 1.0
    found = built(with_calibrated(handmade(), bound), renamed(handmade(), "without"))
    table = found["calibrated"]
    headings = [column.heading for column in table.columns]
    assert headings == [
        "α",
        *(f"l2 accuracy at {r:g}" for r in (0.25, 0.5, 1)),
        "mean bound",
        "mean distance",
        "violated",
    ]
    assert [row.name for row in table.rows] == ["by hand, l2"]
    assert texts(table) == ["0.0500", "60.0 %", "30.0 %", "10.0 %", "0.388", "0.450", "11.1 %"]
    assert "not a certificate" in table.caption
    validity = {row.name: [cell.text for cell in row.cells] for row in found["bound-validity"].rows}
    assert validity["by hand, l2, calibrated bound"] == ["11.1 %", "1.11", "0.862", "9", "calibrated"]
    assert "without, l2, calibrated bound" not in validity


def test_only_smoothing_is_called_certified() -> None:
    calibrated = with_calibrated(handmade(), torch.full((10,), 0.1))
    for table in tables(Comparison.of([handmade(), renamed(calibrated, "b")]), paper=True):
        words = [table.title, table.caption, *(c.heading + c.help for c in table.columns)]
        words += [cell.text + cell.note for row in table.rows for cell in row.cells]
        assert ("certified" in " ".join(words).lower()) == (table.key == "table-4"), table.key
        if table.key in ("table-1", "table-2", "table-3", "table-5", "bound-validity"):
            assert "heuristic" in table.caption.lower()
    assert "Probabilistic" in built()["table-4"].caption


def test_the_papers_rows_are_marked_and_keep_their_digits() -> None:
    found, five = built(paper=True), built(top_five(), paper=True)
    for key, counts in {"table-1": (5, 3), "table-2": (5, 3), "table-3": (5, 3), "table-5": (5, 0)}.items():
        for table, count in zip((found[key], five[key]), counts, strict=True):
            quoted = [row for row in table.rows if row.quoted]
            assert len(quoted) == count
            assert all(len(row.cells) == len(table.columns) for row in quoted)
    assert [sum(row.quoted for row in found[key].rows) for key in ("table-4", "cost")] == [4, 0]
    linf = (*paper_rows("table-1", "mnist5k"), *paper_rows("table-1", "mnist5k", 5))
    at = next(row for row in linf if "ε = 2/255" in row.name)
    expected = ["6.17 %", "100 %", "100 %", "16.02 %", "100 %", "16.80 %", "53.90 %", "10.82", "5.25×"]
    assert [cell.text for cell in at.cells] == expected
    assert [cell.value for cell in at.cells][:7] == [0.0617, 1.0, 1.0, 0.1602, 1.0, 0.168, 0.539]
    assert [row.cells[-1].text for row in linf[-2:]] == ["1.61×", "1.67×"]
    assert "Cohen's and Salman's it quotes itself" in found["table-4"].caption
    assert not any(row.quoted for table in tables(Comparison.of([handmade()])) for row in table.rows)


def test_beside_cifar10_the_paper_is_quoted_on_cifar10_alone() -> None:
    ours = replace(handmade(), data=replace(handmade().data, name="cifar10"))
    for key, count in {"table-1": 5, "table-2": 5, "table-3": 5, "table-4": 4, "table-5": 5}.items():
        quoted = [row.name for row in built(ours, paper=True)[key].rows if row.quoted]
        assert len(quoted) == count
        assert all(name.startswith("paper, CIFAR-10: ") for name in quoted)


def test_rows_have_a_cell_for_every_column_and_dashes_have_no_value() -> None:
    pair = [handmade(), renamed(handmade(hours=None), "b")]
    for table in tables(Comparison.of([*pair, replace(handmade("c"), threats={})]), paper=True):
        for row in table.rows:
            assert len(row.cells) == len(table.columns)
            assert all(cell.value is None for cell in row.cells if cell.text == "–")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.45, "0.450"), (9.996, "10.0"), (1234.5, "1234"), (0.00123, "0.00123"), (1.2e-5, "1.2e-05")]
)  # fmt: skip
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_radii_are_named_as_people_do() -> None:
    assert [radius_name(r) for r in (2 / 255, 8 / 255, 8.5 / 255, 0.5, 1.0, 12.0, 0.1, 0.075)] == [
        "2/255", "8/255", "8.5/255", "0.5", "1", "12", "0.1", "0.075",
    ]  # fmt: skip
