"""Attacks that had no gradient to follow say so: a model without any looks robust and need not be."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attack_models import images, linear_model
from torch import Tensor, nn

import gradreg
from evaluation_toys import linear as toy_model
from evaluation_toys import quick, toy
from gradreg.errors import warn

NET = linear_model(12, 4)


class _NaNBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return z.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * torch.nan


class Hiding(nn.Module):
    """Hands out the logits of a network so that their gradient is of no use."""

    def __init__(self, hide: Callable[[Tensor], Tensor], net: nn.Module = NET) -> None:
        super().__init__()
        self.net, self.hide = net, hide
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.hide(self.net(x))


HIDING: dict[str, Callable[[Tensor], Tensor]] = {
    "one hot": lambda z: 9 * torch.nn.functional.one_hot(z.argmax(1), 4) + 0 * z,
    "detached": lambda z: z.detach() + 1e-30 * (1e-30 * z),
    "saturated": lambda z: 5 * (1e4 * (z - z.mean(1, keepdim=True))).tanh() + z.detach(),
    "not a number backward": lambda z: _NaNBackward.apply(z),  # type: ignore[no-untyped-call]
}


def _answers(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(x).argmax(1)
    return found


@pytest.mark.parametrize("name", HIDING)
def test_a_model_without_gradients_is_said_to_be_one(name: str) -> None:
    model, x = Hiding(HIDING[name]), images(8, 12, "middle")
    y = _answers(model, x)
    with pytest.warns(gradreg.GradregWarning, match="zero or not finite at 8 of 8 correctly") as said:
        found = gradreg.attack(model, x, y, attacks="quick", batch_size=3)
    assert [each.filename for each in said] == [__file__]
    assert found.blind is not None
    assert found.blind.all()
    assert "zero or not finite" in str(found)


def test_attacks_without_gradients_get_their_chance() -> None:
    x = images(8, 12, "middle")
    y = _answers(NET, x)
    with pytest.warns(gradreg.GradregWarning, match="say little about robustness"):
        found = gradreg.attack(Hiding(HIDING["detached"]), x, y, attacks=["fmn", "square", "boundary"])
    assert found.success.all()
    assert not gradreg.attack(Hiding(HIDING["detached"]), x, y, attacks=["square"]).doubt  # it asks for none


@pytest.mark.parametrize("tiny", [1e-30, 1e-36])
def test_small_gradients_lead_to_the_boundary_as_large_ones_do(tiny: float) -> None:
    x = images(8, 12, "middle")
    y, model = _answers(NET, x), Hiding(lambda z: z.detach() + tiny * (z - z.detach()))
    exact = gradreg.attack(NET, x, y, attacks="quick").distance
    assert torch.allclose(gradreg.attack(model, x, y, attacks=["fmn"]).distance, exact, rtol=0.05)


def test_a_few_images_without_a_gradient_are_no_reason_to_warn(tmp_path: Path) -> None:
    x = images(8, 12, "middle")
    x[:2] /= 10  # where all units are off
    model = Hiding(lambda z: z, nn.Sequential(nn.Threshold(0.3, 0.0), linear_model(12, 4)))
    y = _answers(model, x)
    for batch_size, resume in ((8, None), (3, tmp_path / "pool")):
        found = gradreg.attack(model, x, y, attacks="quick", batch_size=batch_size, resume=resume)
        assert found.blind is not None
        assert found.blind.tolist() == [True] * 2 + [False] * 6
        assert not found.doubt
    with pytest.warns(gradreg.GradregWarning, match="at 2 of 2"):
        gradreg.attack(model, x[:2], y[:2], attacks="quick")


def test_what_is_resumed_is_said_too(tmp_path: Path) -> None:
    x = images(4, 12, "middle")
    model = Hiding(HIDING["one hot"])
    for _ in range(2):
        with pytest.warns(gradreg.GradregWarning, match="at 4 of 4"):
            gradreg.attack(model, x, _answers(model, x), attacks="quick", resume=tmp_path / "pool")


def test_an_evaluation_and_its_report_say_it(tmp_path: Path) -> None:
    model = Hiding(HIDING["one hot"], toy_model())
    with pytest.warns(gradreg.GradregWarning, match="^In l2: The model's gradient is zero"):
        found = quick(tmp_path / "evaluation", model=model, data=toy().test, smoothing=())
    (note,) = (each for each in found.notes if "zero or not finite" in each)
    gradreg.report([found], tmp_path / "page.html")
    assert note.partition(": ")[2][:60] in (tmp_path / "page.html").read_text().replace("&#39;", "'")


def test_a_diagnosis_has_flags_for_it() -> None:
    x = images(8, 12, "middle")
    model = Hiding(HIDING["one hot"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flags = gradreg.diagnose(model, x, _answers(model, x), threat="l2")
    assert any(flag.code == "zero-gradient-margin" and flag.severity == "error" for flag in flags)


def test_a_command_shows_the_sentence_alone(capsys: pytest.CaptureFixture[str]) -> None:
    from gradreg.cli.faults import guarded

    with warnings.catch_warnings(), guarded():
        warnings.simplefilter("always")
        warn("Something is odd.")
    assert capsys.readouterr().err == "gradreg: warning: Something is odd.\n"


@pytest.mark.parametrize("slope", [1e-37, 1e-41])
@pytest.mark.parametrize("threat", ["l2", "linf", "l1"])
def test_next_to_no_gradient_leads_into_the_box(threat: Any, slope: float) -> None:
    """A saturated model's boundary, linearised, is as far as numbers go: no point on the way there is NaN."""
    model, x = Hiding(lambda z: 9 * torch.nn.functional.one_hot(z.argmax(1), 4) + slope * z), images(4, 12, "middle")
    attacks = ["fmn", "apgd", "carlini_wagner", *(["ddn"] if threat == "l2" else [])]
    for name in attacks:
        found = gradreg.attack(model, x, _answers(model, x), threat=threat, attacks=[name])
        assert bool(found.adversarial.isfinite().all())
