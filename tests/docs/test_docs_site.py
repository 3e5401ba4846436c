"""The site as a reader gets it: built strictly, complete, and without anything from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path
from shutil import copytree
from urllib.parse import unquote, urlsplit

import pytest

from site_building import build

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md"))


class Page(HTMLParser):
    """The addresses, anchors and images of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.images: list[tuple[str, str]] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("script", "img", "source", "iframe") and "src" in given:
            self.fetched.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon"):
            self.fetched.append(given["href"])
        if tag == "img":
            self.images.append((given["src"], given.get("alt", "")))


def test_every_page_is_there_and_reached_from_the_first(site: Path) -> None:
    expected = {path.relative_to(DOCS).with_suffix(".html").as_posix() for path in PAGES}
    reached = {unquote(urlsplit(link).path) for link in Page(site / "index.html").links}
    assert expected - reached - {"index.html"} == set()
    assert all((site / name).is_file() for name in expected)


def test_every_link_leads_somewhere(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for link in page.links:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                assert address.scheme == "https", f"{path.name}: {link}"
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            assert target.exists(), f"{path.name}: {link}"
            if address.fragment and target in pages:
                assert unquote(address.fragment) in pages[target].anchors, f"{path.name}: {link}"


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        fetched = [urlsplit(address) for address in Page(path).fetched]
        assert fetched
        assert not [address for address in fetched if address.scheme or address.netloc]
    styles = "".join(path.read_text("utf-8") for path in (site / "_static").rglob("*.css"))
    assert not re.search(r"@import|url\(['\"]?(https?:)?//", styles)


def test_every_figure_says_what_it_shows(site: Path) -> None:
    images = [image for path in site.rglob("*.html") for image in Page(path).images]
    assert len(images) >= 5
    for source, words in images:
        assert len(words.split()) >= 3, f"{source} has the alternative text {words!r}"
    for page in (ROOT / "README.md", *PAGES):
        for words, source in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", page.read_text("utf-8")):
            assert len(words.split()) >= 3, f"{page.name}: {source} has the alternative text {words!r}"


def test_the_star_of_a_dual_norm_is_no_emphasis(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert "‖<em>" not in path.read_text("utf-8"), f"{path.name}: write ‖·‖\\_\\* where two stand in a paragraph"


def test_search_finds_what_is_on_the_pages(site: Path) -> None:
    index = (site / "searchindex.js").read_text("utf-8")
    assert re.search(r'"?autoattack"?:', index)
    assert '"results"' in index


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("[x](nowhere.md)", "nowhere.md"),
        ("[x](results.md#no-such-heading)", "no-such-heading"),
        ("[x](../no/such/file.py)", "there is no no/such/file.py"),
        ("![a figure that is not there](nothing.svg)", "nothing.svg"),
    ],
)
@pytest.mark.slow
def test_a_fault_on_a_page_fails_the_build(tmp_path: Path, fault: str, complaint: str) -> None:
    pages = copytree(DOCS, tmp_path / "docs")
    with (pages / "failures.md").open("a") as page:
        page.write(f"\n{fault}\n")
    done = build(pages, tmp_path / "site")
    assert done.returncode != 0
    assert complaint in done.stderr
