"""What was claimed about a model whose nearest adversarial images are known in closed form."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from gradreg.attacks import AttackResult, attack
from gradreg.bounds import Bound, bounds, estimate_regularity
from gradreg.diagnosis import Flag, diagnose, is_proven_bug, verdict
from gradreg.errors import ConfigError, DataError
from gradreg.smoothing import certify

EPS = 0.05


class Halves(nn.Module):
    """Two classes, divided by a plane through the middle of the box, so that the distance is known."""

    def __init__(self, pixels: int = 16) -> None:
        super().__init__()
        self.normal = nn.Parameter(torch.randn(pixels))
        self.training = False

    def forward(self, x: Tensor) -> Tensor:
        height = (x.flatten(1) - 0.5) @ self.normal
        return torch.stack([-height, height], 1)

    def distance(self, x: Tensor) -> Tensor:
        normal = self.normal.detach()
        far: Tensor = ((x.flatten(1) - 0.5) @ normal).abs() / torch.linalg.vector_norm(normal)
        return far


@pytest.fixture
def halves() -> tuple[Halves, Tensor, Tensor]:
    model, x = Halves(), 0.3 + 0.4 * torch.rand(24, 1, 4, 4)
    y = model(x).argmax(1)
    y[5] = 1 - y[5]
    return model, x, y


def the(flags: list[Flag], code: str) -> Flag:
    (found,) = [flag for flag in flags if flag.code == code]
    return found


def test_the_true_distance_is_a_sound_radius_and_more_is_a_proven_bug(halves: tuple[Halves, Tensor, Tensor]) -> None:
    model, x, y = halves
    exact = model.distance(x)
    exact[5] = 0
    flags = diagnose(model, x, y, threat="l2", eps=EPS, sound=0.999 * exact)
    assert the(flags, "certificate-contradicted").severity == "info"
    assert not is_proven_bug(flags)
    lie = exact.clone()
    lie[7] = 1.5 * exact[7] + 0.1
    flags = diagnose(model, x, y, threat="l2", eps=EPS, sound=lie)
    found = the(flags, "certificate-contradicted")
    assert (found.severity, found.evidence["image"], found.evidence["value"]) == ("error", 7, 1)
    assert is_proven_bug(flags)
    assert verdict(flags).word == "broken"
    assert "image 7" in verdict(flags).reason


def test_a_radius_for_a_misclassified_image_is_a_contradiction_too(halves: tuple[Halves, Tensor, Tensor]) -> None:
    model, x, y = halves
    sound = torch.zeros(24)
    sound[5] = 0.01
    assert is_proven_bug(diagnose(model, x, y, threat="l2", eps=EPS, sound=sound))


def test_adversarial_images_of_another_model_prove_nothing(halves: tuple[Halves, Tensor, Tensor]) -> None:
    """They are flagged as not reproduced, and not held against the certificate."""
    model, x, y = halves
    found = attack(model, x, y, threat="l2", attacks="quick")
    moved = replace(found, adversarial=x, distance=torch.full((24,), 1e-3))
    flags = diagnose(model, x, y, threat="l2", eps=EPS, sound=0.9 * model.distance(x), attack_result=moved)
    assert the(flags, "not-reproduced").severity == "error"
    assert the(flags, "not-reproduced").evidence["images"] == 23
    # But the image that is misclassified as it is does contradict its radius.
    assert the(flags, "certificate-contradicted").evidence["value"] == 1
    assert the(flags, "certificate-contradicted").evidence["image"] == 5


def test_a_good_attack_is_reproduced_and_a_weak_one_beaten(halves: tuple[Halves, Tensor, Tensor]) -> None:
    model, x, y = halves
    good = attack(model, x, y, threat="l2", attacks="quick")
    radius = float(model.distance(x).median())
    flags = diagnose(model, x, y, threat="l2", eps=radius, attack_result=good)
    assert the(flags, "not-reproduced").severity == the(flags, "given-attack-beaten").severity == "info"
    weak = replace(
        good,
        distance=torch.where(good.distance > 0, torch.inf, 0.0),
        adversarial=x,
        winner=tuple("clean" if far == 0 else "" for far in good.distance.tolist()),
    )
    beaten = the(diagnose(model, x, y, threat="l2", eps=radius, attack_result=weak), "given-attack-beaten")
    assert beaten.severity == "warning"
    assert int(beaten.evidence["images"]) >= 10


def test_a_heuristic_bound_is_flagged_only_where_it_fails(halves: tuple[Halves, Tensor, Tensor]) -> None:
    model, x, y = halves
    known = estimate_regularity(model, (x, y), threat="l2", method="local", scores="logits")
    bound: Bound = bounds(model, x, y, known)
    honest = the(diagnose(model, x, y, threat="l2", eps=EPS, bound=bound), "bound-violated")
    assert honest.severity == "info"
    bold = replace(bound, lipschitz=2 * model.distance(x), omega=2 * model.distance(x))
    flags = diagnose(model, x, y, threat="l2", eps=EPS, bound=bold)
    found = the(flags, "bound-violated")
    assert found.severity == "warning"
    assert float(found.evidence["value"]) == 1.0
    assert float(found.evidence["worst"]) == pytest.approx(2, rel=0.01)
    # Nobody proved it, so it is no bug.
    assert not is_proven_bug(flags)


def test_a_calibrated_bound_is_flagged_on_images_of_another_kind(halves: tuple[Halves, Tensor, Tensor]) -> None:
    """α is 0.1. Of images like those it was calibrated on few violate it; made too large by half, all do."""
    model, x, y = halves
    other = 0.3 + 0.4 * torch.rand(60, 1, 4, 4)
    known = estimate_regularity(
        model, (x, y), method="local", scores="logits", alpha=0.1, calibration=(other, model(other).argmax(1))
    )
    bound = bounds(model, x, y, known)
    good = attack(model, x, y, threat="l2")
    found = the(diagnose(model, x, y, threat="l2", eps=EPS, bound=bound, attack_result=good), "calibration-violated")
    assert found.severity == "info"
    assert found.evidence["n"] == 23
    bold = replace(bound, score=1.5 * bound.score)
    found = the(diagnose(model, x, y, threat="l2", eps=EPS, bound=bold, attack_result=good), "calibration-violated")
    assert found.severity == "warning"
    assert (found.evidence["images"], found.evidence["n"]) == (23, 23)
    assert float(found.evidence["value"]) < 1e-6
    uncalibrated = replace(bound, calibration=None)
    flags = diagnose(model, x, y, threat="l2", eps=EPS, bound=uncalibrated, attack_result=good)
    assert "calibration-violated" not in {flag.code for flag in flags}


def test_smoothed_certificates_are_explained_and_not_compared(halves: tuple[Halves, Tensor, Tensor]) -> None:
    model, x, y = halves
    certificates = certify(model, x, sigma=0.25, n=200, n0=20, alpha=0.01)
    flags = diagnose(model, x, y, threat="l2", eps=EPS, certificates=certificates)
    found = the(flags, "smoothed-certificates")
    assert found.severity == "info"
    assert "smoothed with σ = 0.25" in found.finding
    assert "certificate-contradicted" not in {flag.code for flag in flags}


def test_claims_about_something_else_are_refused(halves: tuple[Halves, Tensor, Tensor]) -> None:
    model, x, y = halves
    found: AttackResult = attack(model, x, y, threat="l2", attacks="quick")
    with pytest.raises(ConfigError, match=r"attack_result must be for linf, top-1.*got l2"):
        diagnose(model, x, y, threat="linf", attack_result=found)
    with pytest.raises(DataError, match="must have one entry per image of x, 20; got 24"):
        diagnose(model, x[:20], y[:20], threat="l2", attack_result=found)


def test_claims_are_left_out_where_nothing_can_be_compared(halves: tuple[Halves, Tensor, Tensor]) -> None:
    model, x, y = halves
    flags = diagnose(model, 255 * x, y, threat="l2", sound=torch.zeros(24))
    assert any(flag.evidence["tests"] == "sound" for flag in flags if flag.code == "left-out")


def test_a_bound_is_not_violated_where_no_image_is_right_or_none_was_broken(
    halves: tuple[Halves, Tensor, Tensor],
) -> None:
    model, x, y = halves
    bound = bounds(model, x, y, estimate_regularity(model, (x, y), "l2", method="local"))
    flag = the(diagnose(model, x, 1 - model(x).argmax(1), threat="l2", eps=EPS, bound=bound), "bound-violated")
    assert (flag.severity, flag.finding) == ("info", "No images are classified correctly, so no bound can be violated.")
    right = model(x).argmax(1)
    nothing = replace(attack(model, x, right, attacks="quick"), distance=torch.full((24,), torch.inf))
    flag = the(diagnose(model, x, right, threat="l2", eps=EPS, bound=bound, attack_result=nothing), "bound-violated")
    assert (flag.severity, flag.finding) == ("info", "No images were broken, so no bound can be violated.")
