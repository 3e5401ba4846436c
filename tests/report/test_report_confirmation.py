"""What AutoAttack says, as a table, in words and as a command; nothing of it where it was not run."""

from gradreg.evaluation import EvaluationOptions
from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison
from gradreg.report.page import provenance
from gradreg.report.page.html import render
from gradreg.report.tables.registry import tables
from handmade import confirmation, confirmed, handmade, renamed

EIGHT = 8 / 255


def both() -> Evaluation:
    """Within l∞ 8/255 our attacks broke 0 to 3; AutoAttack breaks 0, 1, 2 and 9. Within l2 0.5 both break 0 to 5."""
    evaluation = confirmed(handmade(), "linf", confirmation(EIGHT, [0, 1, 2, 9]))
    return confirmed(evaluation, "l2", confirmation(0.5, range(6)))


def test_a_row_for_each_radius_of_each_model() -> None:
    other = renamed(confirmed(handmade(), "linf", confirmation(EIGHT, range(10), "plus")), "other")
    table = next(table for table in tables(Comparison.of([both(), other])) if table.key == "confirmation")
    assert table.title == "Confirmation by AutoAttack"
    assert [row.name for row in table.rows] == ["by hand, l∞ at 8/255", "other, l∞ at 8/255", "by hand, l2 at 0.5"]
    shown = [[cell.text for cell in row.cells] for row in table.rows]
    assert shown[0] == ["60.0 %", "60.0 %", "50.0 %", "1", "1", "159", "1200"]
    assert shown[1] == ["60.0 %", "0.0 %", "0.0 %", "6", "0", "159", "1200"]
    assert shown[2] == ["40.0 %", "40.0 %", "40.0 %", "0", "0", "159", "1200"]
    assert table.rows[0].cells[2].note == "18.7–81.3 %, n = 10"
    assert "AutoAttack (plus or standard)" in table.caption
    assert "n = 10 images" in table.caption


def test_there_is_no_table_without_figures() -> None:
    assert "confirmation" not in [table.key for table in tables(Comparison.of([handmade()]), paper=True)]
    assert "Confirmation by AutoAttack" not in render(Comparison.of([handmade()]))
    assert "Confirmation by AutoAttack" in render(Comparison.of([both(), renamed(handmade(), "without")]))


def test_the_command_confirms_at_the_same_radii_to_the_last_digit() -> None:
    odd = 0.1 + 0.2
    evaluation = confirmed(both(), "l2", confirmation(odd, [0], "plus"), confirmation(1.0, [0], "plus"))
    made = provenance.of(evaluation)
    words = made.commands[1].split()
    asked = words[words.index("--autoattack") + 1]
    assert asked == "l2=0.30000000000000004,l2=1.0,linf=8/255"
    assert EvaluationOptions(autoattack=asked).confirmations == {"l2": (odd, 1.0), "linf": (EIGHT,)}
    assert words[words.index("--autoattack-version") + 1] == "plus"
    assert dict(made.facts)["AutoAttack"].startswith(
        "plus at l2 0.3 in 60.0 s; plus at l2 1 in 60.0 s; standard at l∞ 8/255"
    )
    assert "AutoAttack" not in dict(provenance.of(handmade()).facts)
    assert "--autoattack-version" not in provenance.of(both()).commands[1]
