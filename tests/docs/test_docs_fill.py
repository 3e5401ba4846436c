"""Pages whose tables are made again, and the marks that ask for them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from docs.make.fill import fill, table
from gradreg.errors import DataError
from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison
from handmade import handmade, renamed
from swept import swept

END = "<!-- gradreg: end -->"


def plain() -> Evaluation:
    return renamed(handmade(objective="undefended", hours=0.5), "plain", recipe={"epochs": 3, "objective": "none"})


def ours() -> Evaluation:
    return renamed(handmade(), "ours", recipe={"epochs": 3})


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page in a checkout with two evaluations."""
    (tmp_path / "pyproject.toml").touch()
    for evaluation in (ours(), plain()):
        evaluation.save(tmp_path / "results" / evaluation.subject.name)
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs" / "page.md"


def test_a_page_is_filled_from_the_evaluations_it_names(page: Path) -> None:
    begin = "<!-- gradreg: reference l2 0.45 from results/* -->"
    page.write_text(f"# Results\n\n{begin}\nstale\n{END}\n\nProse stays.\n")
    assert fill(page)
    text = page.read_text()
    assert text.startswith(f"# Results\n\n{begin}\n")
    assert text.endswith(f"{END}\n\nProse stays.\n")
    assert "| ours | – | 90.0 % <sub>88.0–91.8 %, n = 1000</sub> | 50.0 %" in text
    assert "stale" not in text
    assert not fill(page), "a page that is up to date is left alone"


def test_a_page_quotes_the_paper_below_our_rows(page: Path) -> None:
    for mark, quoted in (("table-2", False), ("table-2 quoted", True)):
        page.write_text(f"<!-- gradreg: {mark} from results/* -->\n{END}\n")
        fill(page)
        assert "| plain |" in page.read_text()
        assert ("paper, CIFAR-10: squared l2 norm, λ = 1" in page.read_text()) is quoted
        assert ("Quoted rows are the paper's" in page.read_text()) is quoted


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("reference l3 0.5 from results/*", r"got 'reference l3 0\.5'"),
        ("paired linf from results/*", "got 'paired linf'"),
        ("reference l2 far from results/*", "A radius must be a number or a fraction, .* got 'far'"),
        ("table-2 doubted from results/*", "must name one of the tables .*table-1, .* got 'table-2 doubted'"),
        ("nonsense from results/*", "must name one of the tables .*table-1, .* got 'nonsense'"),
        ("table-1 from elsewhere/*", "No evaluation matches elsewhere"),
        ("table-1", "A mark on the page has no partner"),
    ],
)
def test_a_mark_that_cannot_be_followed_is_explained(page: Path, mark: str, message: str) -> None:
    page.write_text(f"<!-- gradreg: {mark} -->\n{END}\n")
    before = page.read_text()
    with pytest.raises(DataError, match=message):
        fill(page)
    assert page.read_text() == before


def test_a_page_without_marks_is_not_called_up_to_date(page: Path) -> None:
    page.write_text("Prose alone.\n")
    with pytest.raises(DataError, match="The page has no table to make"):
        fill(page)


def test_a_page_names_runs_without_their_weights(page: Path) -> None:
    swept(page.parent)
    page.write_text(f"<!-- gradreg: runs from docs/h* docs/lazy -->\n{END}\n")
    assert fill(page)
    rows = [line.split(" | ")[0] for line in page.read_text().splitlines() if " of 3" in line]
    assert rows == ["| h1", "| h12", "| lazy"]


def test_contrasts_are_of_the_radii_that_the_mark_names() -> None:
    def trained(name: str, objective: str, distance: float) -> Evaluation:
        made = renamed(handmade(), name, recipe={"epochs": 3, "seed": 0, "objective": objective})
        record = made.threats["l2"]
        moved = replace(record.attacked, distance=torch.full((10,), distance))
        return replace(made, threats={"l2": replace(record, attacked=moved)})

    found = [trained("theirs", "adversarial", 0.2), trained("ours", "gradient", 0.6), trained("third", "trades", 0.6)]
    assert [row.name for row in table(["contrast", "l2", "0", "0.5"], Comparison.of(found)).rows] == [
        "ours against theirs, clean (l2)",
        "third against theirs, clean (l2)",
        "ours against theirs, l2 0.5",
        "third against theirs, l2 0.5",
    ]
    with pytest.raises(DataError, match="A radius must be"):
        table(["contrast", "l2", "far"], Comparison.of(found))
