"""Every disguise is seen through, with the right code, and no honest model is accused."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from masked_models import RADIUS, honest, masked, perceptron, some_digits
from torch import Tensor, nn

from gradreg.classifier import Classifier
from gradreg.diagnosis import Flag, diagnose, verdict
from gradreg.diagnosis.broken import Masked, broken_models
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.registry import TESTS, at_stage
from gradreg.diagnosis.usage import optimises_inside
from gradreg.errors import ModelError
from gradreg.norms import threat as named_threat

NAMES = list(broken_models(nn.Identity().eval()))


def raised(flags: list[Flag]) -> dict[str, str]:
    return {flag.code: flag.severity for flag in flags if flag.severity != "info"}


def the(flags: list[Flag], code: str) -> Flag:
    (found,) = [flag for flag in flags if flag.code == code]
    return found


@cache
def diagnosed(name: str) -> list[Flag]:
    """Several tests look at the same flags."""
    model = perceptron() if name == "perceptron" else masked(name)[0]
    return diagnose(model, *some_digits(), eps=RADIUS)


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_model_is_caught_with_the_right_code(name: str) -> None:
    flags = diagnosed(name)
    assert masked(name)[1] in raised(flags)
    assert verdict(flags).word in ("suspicious", "broken")
    assert all(flag.advice for flag in flags if flag.severity != "info")


@pytest.mark.parametrize("threat", ["linf", "l2", "l1"])
@pytest.mark.parametrize("name", ["perceptron", "linear"])
def test_an_honest_model_shows_no_sign(name: str, threat: str) -> None:
    eps = RADIUS if threat == "linf" else None
    flags = diagnose(honest(name), *some_digits(), threat=threat, eps=eps)
    assert raised(flags) == {}
    assert verdict(flags).word == "no sign of masking in these tests"


@pytest.mark.parametrize("name", [pytest.param("undefended", marks=pytest.mark.slow), "regularised"])
def test_an_honest_digits_network_shows_no_sign(name: str) -> None:
    flags = diagnose(honest(name), *some_digits(24), eps=RADIUS)
    assert raised(flags) == {}


@pytest.mark.parametrize("name", ["input quantised", "input thresholded"])
def test_where_gradients_vanish_other_attacks_win(name: str) -> None:
    """The contests alone, without a look at gradients, would have told."""
    codes = raised(diagnosed(name))
    assert codes["zero-gradient-margin"] == codes["unbounded-attack-fails"] == codes["gradient-free-wins"] == "error"


def test_cold_logits_blind_the_cross_entropy_only() -> None:
    """The margin is not fooled by a factor, so both losses disagree."""
    codes = raised(diagnosed("logits × 1e4"))
    assert {"saturated-loss", "loss-matters"} <= set(codes)
    assert "zero-gradient-margin" not in codes


def test_temperature_changes_the_gap_but_not_the_quotient() -> None:
    """§2.2: with the gradient the gap shrinks, by the same factor; on logits nothing happens at all."""
    honest_flags, hot = diagnosed("perceptron"), diagnosed("temperature 1000")
    before, after = (the(flags, "closed-loss-gap").evidence for flags in (honest_flags, hot))
    assert float(after["value"]) < 0.01 < 0.5 < float(before["value"])
    for code in ("slope-mismatch", "slope-uncorrelated", "unstable-gradient"):
        values = [float(the(flags, code).evidence["value"]) for flags in (honest_flags, hot)]
        assert values[0] == pytest.approx(values[1], abs=1e-3)
    # The cross entropy does see a temperature, so only the margin's attacks are the same.
    for code in ("radius-does-not-help", "unbounded-attack-fails", "not-converged"):
        assert the(hot, code).finding == the(honest_flags, code).finding


def test_probabilities_are_evaluated_through_their_logarithm() -> None:
    """log softmax differs from the logits by a constant, which no margin sees: all other numbers are the same."""
    plain, scores = diagnosed("perceptron"), diagnosed("probabilities")
    assert raised(scores) == {"probabilities": "error"}
    for code in ("zero-gradient-margin", "unbounded-attack-fails", "radius-does-not-help"):
        assert the(plain, code).finding == the(scores, code).finding


@pytest.mark.parametrize(
    ("scale", "severity", "guess"),
    [
        (lambda x: 255 * x, "error", "0 to 255"),
        (lambda x: (x - 0.13) / 0.31, "error", "normalised"),
        (lambda x: x / 255, "warning", "twice"),
    ],
)
def test_pixels_in_other_units(scale: Callable[[Tensor], Tensor], severity: str, guess: str) -> None:
    x, y = some_digits()
    model = Masked(
        perceptron(), before=lambda x: x / scale(torch.ones(())) if guess != "normalised" else 0.31 * x + 0.13
    )
    flags = diagnose(model, scale(x), y, eps=RADIUS, images=20)
    found = the(flags, "input-range")
    assert found.severity == severity
    assert guess in found.finding
    if severity == "error":
        assert {test.code for test in at_stage("contest")} <= set(
            str(the(flags, "left-out").evidence["tests"]).split(", ")
        )
        assert verdict(flags).word == "broken"


def test_labels_that_are_all_wrong_leave_nothing_to_attack() -> None:
    x, _ = some_digits()
    wrong = (perceptron()(x).argmax(1) + 1) % 10
    flags = diagnose(perceptron(), x, wrong, eps=RADIUS)
    assert raised(flags) == {"clean-accuracy": "error"}
    assert "gradient-free-wins" in str(the(flags, "left-out").evidence["tests"])


def test_a_model_that_overflows_near_an_image_stops_the_attack() -> None:
    x, y = some_digits()
    model = Masked(perceptron(), before=lambda points: _cliff(points, x))
    flags = diagnose(model, x, y, eps=RADIUS)
    assert raised(flags)["attack-stopped"] == "error"
    assert "not finite" in the(flags, "attack-stopped").finding


def test_a_claim_about_a_model_that_overflows_around_every_image_is_left_out() -> None:
    x, y = some_digits()
    model = Masked(perceptron(), before=_off_the_grid)
    flags = diagnose(model, x, y, eps=RADIUS, sound=torch.zeros(len(x)))
    assert raised(flags)["attack-stopped"] == "error"
    left_out = [str(flag.evidence["tests"]) for flag in flags if flag.code == "left-out"]
    assert left_out[-1] == "certificate-contradicted"


def _off_the_grid(points: Tensor) -> Tensor:
    """Not a number unless every pixel is a byte."""
    levels = 255 * points.flatten(1)
    off = (levels - levels.round()).abs().amax(1) > 0.01
    return torch.where(off.view(-1, 1, 1, 1), torch.nan, points)


def _cliff(points: Tensor, x: Tensor) -> Tensor:
    """Not a number where the mean pixel is far from that of all of the images."""
    far = points.flatten(1).mean(1) > float(x.flatten(1).mean(1).max()) + 0.01
    return torch.where(far.view(-1, 1, 1, 1), torch.nan, points)


def _inner_steps(kind: str, inner: nn.Module) -> Callable[[Tensor], Tensor]:
    def total(x: Tensor) -> Tensor:
        logits: Tensor = inner(x)
        return logits.logsumexp(1).sum()

    def backward(x: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            total(leaf).backward(inputs=[leaf])
        assert leaf.grad is not None
        return leaf.grad

    taken_by: dict[str, Callable[[Tensor], Tensor]] = {
        "backward": backward,
        "torch.func": torch.func.grad(total),
        "none": torch.zeros_like,
    }
    return lambda x: x + 0.01 * taken_by[kind](x)


@pytest.mark.parametrize(("kind", "severity"), [("backward", "error"), ("torch.func", "error"), ("none", "info")])
def test_gradients_inside_the_forward_are_seen_however_they_are_taken(kind: str, severity: str) -> None:
    x, y = some_digits(4)
    model = Masked(perceptron(), before=_inner_steps(kind, perceptron()))
    case = Case(Classifier(model), x, y, model(x).detach(), named_threat("linf"), RADIUS, 1, 0, 64)
    assert optimises_inside(case).severity == severity


def test_a_model_that_cannot_be_differentiated_is_refused_in_a_sentence() -> None:
    with pytest.raises(ModelError, match="numpy"):
        diagnose(lambda x: perceptron()(torch.from_numpy(x.numpy())), *some_digits(4))


def test_every_test_leaves_a_flag_and_every_code_is_known() -> None:
    flags = diagnosed("perceptron")
    codes = [flag.code for flag in flags]
    claims = {"not-reproduced", "given-attack-beaten", "certificate-contradicted", "bound-violated"}
    claims |= {"calibration-violated"}
    assert len(codes) == len(set(codes))
    assert set(TESTS) - set(codes) == claims | {"left-out", "attack-stopped", "smoothed-certificates"}
    assert all(flag.finding.endswith(".") for flag in flags)
