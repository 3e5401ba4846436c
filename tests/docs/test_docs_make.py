"""`python -m docs.make`: the documents are what results/ says, and the command says what it changed."""

import re
from pathlib import Path

import pytest

from docs.make.__main__ import main, make, pages
from docs.make.figures import FIGURES
from docs.make.fill import filled

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: page.name)
def test_a_page_says_what_the_results_say(page: Path) -> None:
    text = page.read_text("utf-8")
    assert filled(text, ROOT) == text, f"run `python -m docs.make docs/{page.name}`"


@pytest.mark.parametrize(
    ("name", "mark"), [("attacks", "attacks targets"), ("paper", "table-1 quoted"), ("results", "reference")]
)
def test_the_pages_of_results_are_among_them(name: str, mark: str) -> None:
    page = ROOT / "docs" / f"{name}.md"
    assert page in pages(ROOT)
    assert f"<!-- gradreg: {mark}" in page.read_text("utf-8")


def test_every_figure_of_a_page_can_be_made() -> None:
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {
        (page.parent / name).relative_to(ROOT).as_posix()
        for page in documents
        for name in re.findall(r"!\[[^]]*\]\(([^)]+\.svg)\)", page.read_text("utf-8"))
    }
    drawn = {name for name in FIGURES if (ROOT / name).is_file()}
    assert shown == drawn
    assert all(FIGURES[name](ROOT) is None for name in FIGURES.keys() - drawn), "only what has no results is missing"


def test_a_figure_is_drawn_where_it_is_missing_and_left_alone_after_that(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").symlink_to(ROOT / "results")
    figure = tmp_path / "docs" / "sweep.svg"
    assert make(figure, tmp_path)
    assert figure.read_text().startswith("<?xml")
    assert not make(figure, tmp_path)


def test_the_command_says_what_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "results").symlink_to(ROOT / "results")
    page = tmp_path / "page.md"
    page.write_text("<!-- gradreg: runs from results/sweep/* -->\n<!-- gradreg: end -->\n")
    for state in ("changed", "up to date"):
        main([str(page)])
        assert capsys.readouterr().out == f"{page}: {state}\n"


def test_a_file_that_cannot_be_made_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["docs/unknown.svg"])
    assert stop.value.code == 2
    assert re.fullmatch(r"docs\.make: .* one of docs/cost\.svg, .*; got docs/unknown\.svg\.\n", capsys.readouterr().err)
