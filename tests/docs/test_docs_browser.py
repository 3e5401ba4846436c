"""The site in a real browser, from a folder without a server: search, both widths, light and dark."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from chromium import NAMES, Tab, browsing, find

CHROMIUM = find()
if CHROMIUM is None:
    pytest.skip(
        f"No browser: none of {', '.join(NAMES)} was found, so the site was not opened.", allow_module_level=True
    )

DESKTOP, PHONE = 1280, 390
PAGES = ("index", "start", "choose", "how", "results", "commands", "reference/attacks", "reference/errors")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    assert CHROMIUM is not None
    with browsing(CHROMIUM, tmp_path_factory.mktemp("profile")) as tab:
        yield tab


def waited(tab: Tab, script: str) -> object:
    """The value of an expression once it is neither empty nor 0, also on the page that is being opened."""
    end, value = time.monotonic() + 10, None
    while not value and time.monotonic() < end:
        with suppress(RuntimeError):  # the page that was asked is gone
            value = tab.run(script)
        time.sleep(0.05)
    return value


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_pages_fit_and_ask_for_nothing_outside(tab: Tab, site: Path, width: int) -> None:
    tab.screen(width)
    for page in PAGES:
        tab.open(site / f"{page}.html")
        assert tab.run("document.documentElement.scrollWidth") <= width, f"{page} is wider than the screen"
        assert tab.problems() == []
        assert all(address.startswith(site.as_uri()) for address in tab.requests())
        assert tab.run("[...document.images].every(image => image.complete && image.naturalWidth > 0)")


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_follow_the_system(tab: Tab, site: Path, dark: bool) -> None:
    tab.screen(DESKTOP, dark=dark)
    tab.open(site / "results.html")
    shade = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    assert (tab.run(shade) < 150) == dark
    assert tab.run("getComputedStyle(document.querySelector('article img')).backgroundColor") == "rgb(255, 255, 255)"


def test_search_finds_a_page_and_a_public_name(tab: Tab, site: Path) -> None:
    tab.screen(DESKTOP)
    for words, wanted in (("catastrophic overfitting", "faq.html"), ("estimate_regularity", "reference/bounds.html")):
        tab.open(site / "index.html")
        tab.run(f"document.querySelector('.sidebar-search').value = '{words}'")
        tab.run("void setTimeout(() => document.querySelector('.sidebar-search-container').submit())")
        waited(tab, "location.pathname.endsWith('search.html')")
        links = "[...document.querySelectorAll('#search-results li a')].map(a => a.href)"
        assert waited(tab, f"{links}.some(address => address.includes('{wanted}'))"), f"{words}: {tab.run(links)}"


def test_the_menu_opens_on_a_phone(tab: Tab, site: Path) -> None:
    tab.screen(PHONE)
    tab.open(site / "index.html")
    left = "document.querySelector('.sidebar-drawer').getBoundingClientRect().left"
    assert tab.run(left) < 0
    tab.click("label.nav-overlay-icon[for=__navigation]")
    assert waited(tab, f"{left} >= 0")


def test_equations_are_drawn(tab: Tab, site: Path) -> None:
    tab.screen(DESKTOP)
    tab.open(site / "how.html")
    assert tab.run("document.querySelectorAll('div.equation math').length") >= 4
    assert tab.run("document.querySelector('div.equation math').getBoundingClientRect().height") > 15
    assert tab.run("document.body.textContent.includes('\\\\frac')") is False
