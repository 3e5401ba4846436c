"""Progress: a bar on a terminal, a line per epoch elsewhere, and TensorBoard if it is installed."""

import sys
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console
from tiny import tiny_fit

from gradreg.training.reporting import Reporter


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


def test_tensorboard_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path)

        def add_scalar(self, name: str, value: float, epoch: int) -> None:
            logged.append((name, value, epoch))

        def close(self) -> None:
            logged.append(("closed", 0.0, 0))

    fake: Any = ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    with Reporter(None, tmp_path) as reporter:
        reporter.epoch({"epoch": 3, "loss": 0.5, "name": "x"}, 5)
    assert logged == [("loss", 0.5, 3), ("closed", 0.0, 0)]
