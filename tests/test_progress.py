"""One progress bar: in a notebook without being asked, on a terminal through a console, else none."""

import sys
from io import StringIO
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from evaluation_toys import linear, part, quick
from gradreg import attack, certify, diagnose, inspect_image, progress
from gradreg.attacks import fmn
from gradreg.errors import ConfigError


def test_a_notebook_shows_how_much_is_done_and_what_is_left(
    notebook: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 10))
    now = [0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    with progress.bar("attacks <l2>") as bar:
        for done in (20, 40):
            now[0] = next(clock) + 10
            bar(done, 80)
    assert [one["text/plain"] for one in notebook] == [
        "attacks <l2> 20/80",
        "attacks <l2> 40/80  0:40 left",
        "attacks <l2> 40/80  0:40 left",
    ]
    assert notebook[-1]["text/html"] == (
        '<div>attacks &lt;l2&gt; <progress value="40" max="80"></progress> 40/80  0:40 left</div>'
    )


def test_work_that_is_over_at_once_leaves_nothing_in_a_notebook(
    notebook: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PATIENCE", 60.0)
    with progress.bar("attacks") as bar:
        bar(1, 1)
        assert not bar.due
    assert notebook == []


def test_a_quiet_console_silences_a_notebook(notebook: list[dict[str, str]]) -> None:
    with progress.bar("attacks", Console(quiet=True)) as bar:
        bar(1, 1)
    assert notebook == []


def test_what_fails_leaves_the_bar_where_it_was(notebook: list[dict[str, str]]) -> None:
    def fail() -> None:
        with progress.bar("attacks") as bar:
            bar(1, 2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert notebook[-1]["text/plain"].startswith("attacks 1/2")


def test_only_a_kernel_is_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython: Any = ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    for shell, expected in ((None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=object()), True)):
        ipython.get_ipython = lambda found=shell: found
        assert progress.in_notebook() is expected


def test_a_terminal_gets_it_from_rich_and_a_log_gets_none() -> None:
    for terminal in (True, False):
        out = StringIO()
        with progress.bar("[attacks]", Console(file=out, force_terminal=terminal, width=120)) as bar:
            bar(3, 7, "a note")
        shown = out.getvalue()
        assert all((word in shown) is terminal for word in ("[attacks]", "3/7", "a note"))


def test_an_evaluation_shows_each_stage_in_a_notebook(notebook: list[dict[str, str]]) -> None:
    quick()
    stages = {one["text/plain"].rpartition(" ")[0].split(" ", 1)[0] for one in notebook}
    assert {"attacks", "bounds", "smoothing"} <= stages


@pytest.mark.parametrize("name", ["attack", "fmn", "certify"])
def test_attacks_and_certificates_show_a_bar_in_a_notebook(name: str, notebook: list[dict[str, str]]) -> None:
    images = part(4, seed=1)
    x, y = images.pixels / 255, images.labels
    calls: dict[str, Any] = {
        "attack": lambda progress=None: attack(linear(), x, y, attacks="quick", batch_size=2, progress=progress),
        "fmn": lambda progress=None: fmn(linear(), x, y, steps=3, batch_size=1, progress=progress),
        "certify": lambda progress=None: certify(linear(), x, sigma=0.25, n=200, progress=progress),
    }
    calls[name](False)
    assert notebook == []
    told: list[tuple[int, int]] = []
    calls[name](lambda done, total: told.append((done, total)))
    assert notebook == []
    assert told[-1][0] == told[-1][1]
    assert told == sorted(set(told))
    calls[name]()
    assert notebook[-1]["text/plain"].startswith(f"{name} {told[-1][0]}/{told[-1][1]}")


def test_a_bar_that_is_asked_for_is_on_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    out = StringIO()
    monkeypatch.setattr("rich.console.Console", lambda stderr: Console(file=out, force_terminal=True, width=120))
    images = part(4, seed=1)
    attack(linear(), images.pixels / 255, images.labels, attacks="quick", progress=True)
    assert "attack" in out.getvalue()
    assert "3/3" in out.getvalue()


def test_several_radii_are_one_bar() -> None:
    told: list[tuple[int, int]] = []
    images = part(4, seed=1)
    fmn(linear(), images.pixels / 255, images.labels, eps=[0.05, 0.1], progress=lambda *each: told.append(each))
    assert told == [(1, 2), (2, 2)]


def test_what_asks_attacks_inside_shows_no_bars_of_theirs(notebook: list[dict[str, str]]) -> None:
    images = part(4, seed=1)
    x, y = images.pixels / 255, images.labels
    inspect_image(linear(), x[0], samples=200)
    diagnose(linear(), x, y)
    assert notebook == []


def test_a_progress_of_another_kind_is_refused() -> None:
    images = part(4, seed=1)
    with pytest.raises(ConfigError, match="progress must be True, False or a function"):
        attack(linear(), images.pixels / 255, images.labels, progress="yes")  # type: ignore[arg-type]
