"""Figures that the guide quotes stand on the pages that prove them, which are made from results/."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PROOFS = "".join((DOCS / name).read_text("utf-8") for name in ("results.md", "variants.md", "sweeps.md"))
PROOFS += (DOCS.parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["choose.md", "faq.md"])
def test_every_figure_of_the_guide_stands_on_a_page_of_results(page: str) -> None:
    figures = set(re.findall(r"\d+\.\d+ %|\d+\.\d\d×", (DOCS / page).read_text("utf-8")))
    assert figures
    missing = sorted(figure for figure in figures if figure not in PROOFS)
    assert not missing, f"{page} quotes what no page of results has: {', '.join(missing)}"
