"""What the tests share: deterministic inputs that leave the global random streams alone."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

import site_building

settings.register_profile("gradreg", deadline=None, derandomize=True)
settings.load_profile("gradreg")


@pytest.fixture(autouse=True)
def _one_thread_and_a_fixed_seed() -> Iterator[None]:
    """Weights are drawn from the global stream, so each test starts it at the same place and puts it back."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    """A compiled forward serves every model of the same layers, also with options of an earlier test."""
    yield
    if compiler := sys.modules.get("torch._dynamo"):
        compiler.reset()


@pytest.fixture
def as_in_a_terminal() -> Iterator[None]:
    """A shell starts background jobs, as a CI's may be, with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """As in a Jupyter kernel, with bars at once: every bundle that was displayed, by MIME type."""
    drawn: list[dict[str, str]] = []

    def display(bundle: dict[str, str], *, raw: bool, display_id: bool = True) -> SimpleNamespace:
        assert raw
        drawn.append(bundle)
        return SimpleNamespace(update=display)

    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display = ModuleType("IPython.display")
    ipython.display.display = display
    for name, module in (("IPython", ipython), ("IPython.display", ipython.display)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("gradreg.progress._PATIENCE", 0.0)
    monkeypatch.setattr("gradreg.progress._EVERY", 0.0)
    return drawn


@pytest.fixture
def smooth_net() -> nn.Module:
    """A small C∞ network in double precision, with gradients large enough to measure."""
    net = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(6 * 16, 12), nn.GELU()
    ).append(nn.Linear(12, 5))
    for weight in net.parameters():
        nn.init.normal_(weight, std=0.4)
    return net.double()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    """Seven 3×8×8 images of five classes, in double precision."""
    source = torch.Generator().manual_seed(1)
    return torch.rand(7, 3, 8, 8, generator=source, dtype=torch.float64), torch.randint(0, 5, (7,), generator=source)


@pytest.fixture
def linear() -> nn.Sequential:
    """A linear model of four classes for `images`, where distances and bounds are known in closed form."""
    return nn.Sequential(nn.Flatten(), nn.Linear(48, 4)).double().eval()


@pytest.fixture
def images() -> Tensor:
    """Well inside the pixel box, so that perturbed a little they stay there."""
    return 0.3 + 0.4 * torch.rand(60, 3, 4, 4, dtype=torch.float64)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """A page that no browser opened is not passed over in silence."""
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if "No browser" in reason:
            terminalreporter.write_line(reason.removeprefix("Skipped: "))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents as a built site."""
    return site_building.shared(tmp_path_factory.getbasetemp())
