"""Progress: a bar on a terminal and in a notebook, a line per epoch elsewhere."""

from io import StringIO

import pytest
from rich.console import Console
from tiny import tiny_fit


def test_a_log_gets_one_line_per_epoch() -> None:
    console = Console(file=StringIO(), width=40, record=True, force_terminal=False)
    tiny_fit(console=console, epochs=2)
    lines = console.export_text().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("epoch 1/2  loss ")
    for word in ("clean", "probe", "‖∇ℓ‖", "images/s"):
        assert word in lines[0]


def test_a_terminal_gets_a_bar_with_a_rate() -> None:
    console = Console(file=StringIO(), width=120, force_terminal=True)
    tiny_fit(console=console, epochs=1)
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert "5/5" in shown
    assert "images/s" in shown


def test_without_a_console_nothing_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    tiny_fit(epochs=1)
    assert capsys.readouterr() == ("", "")


def test_a_notebook_gets_a_bar_without_being_asked(notebook: list[dict[str, str]]) -> None:
    tiny_fit(epochs=1)
    assert notebook[-1]["text/plain"].startswith("training 5/5  epoch 1  loss ")
    assert "images/s" in notebook[-1]["text/html"]
