"""A diagnosis leaves everything as it was, does not depend on how it is cut up, and says what a caller did wrong."""

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from masked_models import RADIUS, masked, perceptron, some_digits
from rich.console import Console
from torch import Tensor, nn

from gradreg.classifier import Classifier
from gradreg.cli import diagnose as command
from gradreg.cli.diagnose import _status as status
from gradreg.diagnosis import Flag, diagnose, verdict
from gradreg.diagnosis.flags import make
from gradreg.diagnosis.options import DiagnosisOptions
from gradreg.errors import ConfigError, DataError, GradregError, ModelError


def stochastic() -> nn.Sequential:
    """Dropout and batch normalisation around the perceptron."""
    return nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.1), perceptron())


def test_train_mode_is_flagged_and_kept_and_nothing_else_moves() -> None:
    x, y = some_digits()
    model = stochastic()
    model[2].eval()
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    flags = diagnose(model, x, y, eps=RADIUS, images=16)
    assert next(flag for flag in flags if flag.code == "train-mode").severity == "error"
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(weight.grad is None and weight.requires_grad for weight in model[0].parameters())
    # In eval mode it is as honest as what is inside.
    assert [flag.code for flag in flags if flag.severity != "info"] == ["train-mode"]


def test_a_random_model_leaves_the_random_stream_alone() -> None:
    random = torch.get_rng_state()
    flags = diagnose(masked("noise inside")[0], *some_digits(), eps=RADIUS)
    assert torch.equal(torch.get_rng_state(), random)
    left = next(flag for flag in flags if flag.code == "left-out")
    assert {"slope-mismatch", "gradient-free-wins"} <= set(str(left.evidence["tests"]).split(", "))
    # What needs no repeatable answer is still tested.
    assert "zero-gradient-margin" in {flag.code for flag in flags}


def test_the_mode_is_restored_when_the_model_fails() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("no such kernel")

    model = Failing().train()
    with pytest.raises(ModelError, match="no such kernel"):
        diagnose(model, *some_digits())
    assert model.training


def test_flags_do_not_depend_on_batches() -> None:
    x, y = some_digits(30)
    whole = diagnose(perceptron(), x, y, eps=RADIUS)
    assert [flag.finding for flag in diagnose(perceptron(), x, y, eps=RADIUS, batch_size=7)] == [
        flag.finding for flag in whole
    ]


def test_classifiers_and_functions_are_diagnosed_too() -> None:
    x, y = some_digits(16)
    model = perceptron()
    expected = [flag.finding for flag in diagnose(model, x, y, eps=RADIUS)]
    assert [flag.finding for flag in diagnose(Classifier(model), x, y, eps=RADIUS)] == expected
    assert [flag.finding for flag in diagnose(lambda points: model(points), x, y, eps=RADIUS)] == expected


def test_another_box_is_respected() -> None:
    """Pixels 0 to 255 are fine where the classifier says so; every number scales with the box."""
    x, y = some_digits(16)
    model = perceptron()
    wide = Classifier(lambda points: model(points / 255), box=(0.0, 255.0))
    one = diagnose(model, x, y, threat="l2", eps=1.0)
    other = diagnose(wide, 255 * x, y, threat="l2", eps=255.0)
    assert [(flag.code, flag.severity) for flag in one] == [(flag.code, flag.severity) for flag in other]


def test_only_the_first_images_are_looked_at() -> None:
    x, y = some_digits(30)
    spoilt = x.clone()
    spoilt[12:] = 7.0
    flags = diagnose(perceptron(), spoilt, y, eps=RADIUS, images=12)
    assert next(flag for flag in flags if flag.code == "clean-accuracy").evidence["n"] == 12
    assert verdict(flags).word == "no sign of masking in these tests"


def test_the_cost_is_what_the_page_says() -> None:
    """A constant model is never broken, so nothing is spared."""
    rows = {"forwards": 0, "backwards": 0}

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            rows["forwards"] += len(x)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            rows["backwards"] += len(gradient)
            return gradient

    def constant(x: Tensor) -> Tensor:
        seen: Tensor = Counted.apply(x)  # type: ignore[no-untyped-call]
        return torch.tensor([[1.0, 0.0]]) + 0 * seen.flatten(1).sum(1, keepdim=True)

    diagnose(constant, torch.rand(10, 1, 8, 8), torch.zeros(10, dtype=torch.int64))
    page = (Path(__file__).parents[2] / "docs" / "diagnosis.md").read_text(encoding="utf-8")
    said = re.search(r"([0-9]+) forwards and ([0-9]+) backwards per image", page)
    assert said is not None
    assert [round(rows["forwards"] / 10), round(rows["backwards"] / 10)] == [int(number) for number in said.groups()]


@pytest.mark.parametrize("name", ["honest", "not a number", "noise inside"])
def test_progress_rises_to_the_total(name: str) -> None:
    calls: list[tuple[int, int]] = []
    model = perceptron() if name == "honest" else masked(name)[0]
    diagnose(model, *some_digits(12), eps=RADIUS, progress=lambda done, total: calls.append((done, total)))
    assert calls == sorted(calls)
    assert calls[-1][0] == calls[-1][1]
    assert len({total for _, total in calls}) == 1


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"eps": 0.0}, ConfigError, "eps must be positive; got 0.0"),
        ({"images": 0}, ConfigError, "images must be at least 1; got 0"),
        ({"threat": "l7"}, ConfigError, "threat must be one of .*; got 'l7'"),
        ({"topk": 10}, ConfigError, "topk must be from 1 to 9 .*; got 10"),
        ({"y": torch.full((8,), 10)}, DataError, "y must hold labels from 0 to 9, the model's classes; got 10 to 10"),
        ({"y": torch.zeros(7, dtype=torch.int64)}, DataError, "y must hold 8 integer labels; got"),
        (
            {"x": torch.zeros(8, 1, 28, 28, dtype=torch.uint8)},
            DataError,
            "x must be a float batch of shape .*; got torch.uint8",
        ),
        ({"sound": torch.zeros(7)}, DataError, "sound must have one entry per image of x, 8; got 7"),
        ({"sound": -torch.ones(8)}, DataError, "negative"),
    ],
)
def test_a_callers_mistake_is_one_sentence(change: dict[str, Any], error: type[GradregError], words: str) -> None:
    x, y = some_digits(8)
    with pytest.raises(error, match=words) as caught:
        diagnose(perceptron(), **{"x": x, "y": y, **change})
    assert str(caught.value).endswith(".")


def carry_out(
    model: Any, x: torch.Tensor, y: torch.Tensor, console: Console, eps: float | None = None, **more: Any
) -> int:
    return command.report(model, x, y, DiagnosisOptions(eps=eps), console, **more)


def test_the_command_prints_writes_and_ends_with_a_status(tmp_path: Path) -> None:
    x, y = some_digits(16)
    console = Console(file=StringIO(), width=200, record=True)
    arguments: dict[str, Any] = {"console": console, "eps": RADIUS, "output": tmp_path / "flags.json"}
    assert carry_out(perceptron(), x, y, **arguments) == 0
    assert "no sign of masking in these tests" in console.export_text()
    assert carry_out(masked("logits × 1e4")[0], x, y, name="cold", **arguments) == 1
    text = console.export_text()
    assert "zero-gradient-cross-entropy" in text
    assert "Attack the margin on logits" in text
    written = json.loads((tmp_path / "flags.json").read_text(encoding="utf-8"))
    assert written["verdict"]["word"] == "broken"
    assert Flag(**written["flags"][0]).code == "train-mode"
    with pytest.raises(ConfigError, match="no folder"):
        carry_out(perceptron(), x, y, console=console, output=tmp_path / "none" / "flags.json")


def test_a_contradicted_certificate_has_a_status_of_its_own() -> None:
    bad = make("randomised", "error", "…")
    assert status([bad]) == 1
    assert status([bad, make("certificate-contradicted", "error", "…")]) == 3


def test_the_command_holds_proofs_against_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prover that claims radius 1 for everything is contradicted by any adversarial image: a bug, status 3."""
    x, y = some_digits(8)
    console = Console(file=StringIO(), width=200, record=True)
    monkeypatch.setattr(command, "sound_radius", lambda model, x, y, threat: torch.ones(len(x)))
    assert carry_out(perceptron(), x, y, console=console, eps=RADIUS, sound=True) == 3
    assert "certificate-contradicted" in console.export_text()
    monkeypatch.setattr(command, "sound_radius", lambda model, x, y, threat: torch.zeros(len(x)))
    assert carry_out(perceptron(), x, y, console=console, eps=RADIUS, sound=True) == 0
    with pytest.raises(ConfigError, match="bare function"):
        carry_out(lambda x: perceptron()(x), x, y, console=console, sound=True)
