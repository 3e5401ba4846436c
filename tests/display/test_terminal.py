"""Pictures for a terminal, sign by sign."""

import pytest

from gradreg.display.terminal import Curves, bar


@pytest.mark.parametrize(
    ("fraction", "drawn", "plain"),
    [
        (0.0, "········", "........"),
        (0.5, "████····", "####...."),
        (1.0, "████████", "########"),
        (1 / 64, "▏·······", "........"),
        (33 / 64, "████▏···", "####...."),
        (1.7, "████████", "########"),
    ],
)
def test_a_bar_is_exact_to_an_eighth_of_a_column(fraction: float, drawn: str, plain: str) -> None:
    assert bar(fraction, 8).plain == drawn
    assert bar(fraction, 8, plain=True).plain == plain


def test_curves_are_where_they_belong() -> None:
    """One that stays at 1, and one that falls to 0 halfway."""
    lines = [("high", lambda x: 1.0), ("falls", lambda x: 1.0 if x < 0.5 else 0.0)]
    curves = Curves("accuracy", lines, 1.0, [(0.0, "0"), (0.5, "0.5"), (0.52, "0.52"), (1.0, "1")], width=21, height=4)
    title, *rows = curves.text().plain.splitlines()
    assert title == "accuracy"
    assert rows[0] == " 100 % │" + "▲" * 10 + "●" * 11, "the later line is on top where both are"
    assert rows[4] == "   0 % │" + " " * 10 + "▲" * 11
    assert [row[:7].strip() for row in rows[:5]] == ["100 %", "75 %", "50 %", "25 %", "0 %"]
    assert rows[6].split() == ["0", "0.5", "1"], "0.52 would run into 0.5"
    assert rows[6].index("0.5") + 1 == len(" 100 % │") + 10
    assert rows[7].split() == ["●", "high", "▲", "falls"]


def test_plain_pictures_are_ascii() -> None:
    curves = Curves("t", [("a", lambda x: 0.5), ("b", lambda x: x)], 1.0, [(0.0, "0")])
    assert curves.text(plain=True).plain.isascii()
