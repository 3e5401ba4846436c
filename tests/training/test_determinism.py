"""`deterministic = true`: in force during the run, gone after it."""

from pathlib import Path

import pytest
import torch
from tiny import Plain, same_weights, tiny_fit
from torch import Tensor, nn

from gradreg.errors import ConfigError
from gradreg.objectives import Moment, Outcome
from gradreg.training.determinism import deterministic

Flags = tuple[bool, bool, bool, bool]


def flags() -> Flags:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.deterministic,
    )


class Spy(Plain):
    """Notes which flags a step sees, and fails in step `last` if there is one."""

    def __init__(self, last: int | None = None) -> None:
        self.seen: set[Flags] = set()
        self.last = last

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
        self.seen.add(flags())
        if at.step == self.last:
            raise ZeroDivisionError
        return super().__call__(model, x, y, at)


@pytest.mark.parametrize("benchmark", [False, True])
def test_flags_hold_during_the_run_and_are_put_back(benchmark: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", benchmark)
    before = flags()
    assert before[0] is False
    spy = Spy()
    tiny_fit(objective=spy, epochs=1, deterministic=True)
    assert spy.seen == {(True, False, False, True)}
    assert flags() == before
    failing = Spy(last=2)
    with pytest.raises(ZeroDivisionError):
        tiny_fit(objective=failing, epochs=1, deterministic=True)
    assert failing.seen == {(True, False, False, True)}
    assert flags() == before
    usual = Spy()
    tiny_fit(objective=usual, epochs=1)
    assert usual.seen == {before}


def test_on_a_cpu_it_changes_nothing(tmp_path: Path) -> None:
    tiny_fit(tmp_path / "usual", epochs=2)
    tiny_fit(tmp_path / "strict", epochs=2, deterministic=True)
    assert same_weights(tmp_path / "usual", tmp_path / "strict")


class Unsteady(Plain):
    """Uses an operation that torch has in no deterministic form."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
        return super().__call__(model, x, y, at)


def test_an_operation_without_a_deterministic_form_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^put_ has no deterministic implementation on cpu, .*\.$"):
        tiny_fit(objective=Unsteady(), epochs=1, deterministic=True)
    assert not torch.are_deterministic_algorithms_enabled()


def test_cuda_wants_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    before, device = flags(), torch.device("cuda")
    for value in (None, "", ":8:16"):
        if value is None:
            monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
        else:
            monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value)
        with (
            pytest.raises(ConfigError, match=r"Start the program with CUBLAS_WORKSPACE_CONFIG=:4096:8\.$"),
            deterministic(True, device),
        ):
            pass
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with deterministic(True, device):
        assert flags() == (True, False, False, True)
    assert flags() == before
