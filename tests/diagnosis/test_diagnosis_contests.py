"""What the contests make of attacks with a known outcome: honest gradients never lose these, so the attack is given."""

import pytest
import torch
from torch import Tensor, nn

from gradreg.classifier import Classifier
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.contests import _EFFORTS, _RADII, Contest, not_converged, radius_does_not_help
from gradreg.norms import threat

IMAGES = 20


@pytest.fixture
def contest() -> Contest:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).eval()
    x = torch.rand(IMAGES, 1, 2, 2)
    logits = model(x).detach()
    return Contest(Case(Classifier(model), x, logits.argmax(1), logits, threat("l2"), 0.5, 1, 0, 64))


def breaks(monkeypatch: pytest.MonkeyPatch, images: dict[tuple[float, int], int]) -> None:
    """Let the gradient attack break the first so many images, by radius (as a share of ε) and effort."""

    def ascend(self: Contest, case: Case, eps: float, effort: int = 1) -> Tensor:
        return torch.arange(len(case)) < images[(eps / 0.5, effort)]

    monkeypatch.setattr(Contest, "ascend", ascend)


@pytest.mark.parametrize(("last", "severity"), [(12, "info"), (11, "info"), (8, "warning")])
def test_an_attack_that_breaks_less_in_a_larger_ball_is_flagged(
    contest: Contest, monkeypatch: pytest.MonkeyPatch, last: int, severity: str
) -> None:
    """Twelve images within 2ε and fewer within 4ε; a single one may be luck."""
    breaks(monkeypatch, {(share, 1): count for share, count in zip(_RADII, (2, 4, 8, 12, last), strict=True)})
    flag = radius_does_not_help(contest)
    assert (flag.code, flag.severity) == ("radius-does-not-help", severity)
    assert flag.evidence["images"] == 12 - last


@pytest.mark.parametrize(
    ("gains", "last", "severity"),
    [((0, 0, 0), 0, "info"), ((2, 9, 9), 2, "info"), ((4, 1, 9), 1, "info"), ((3, 3, 3), 3, "warning")],
)
def test_an_attack_that_breaks_more_however_many_steps_it_has_is_flagged(
    contest: Contest, monkeypatch: pytest.MonkeyPatch, gains: tuple[int, ...], last: int, severity: str
) -> None:
    """Ten of twenty at ε, where the contest is then held; it ends with a doubling that gains a tenth or less."""
    once = {(share, 1): count for share, count in zip(_RADII, (0, 0, 10, 20, 20), strict=True)}
    breaks(monkeypatch, once | {(1.0, effort): gain for effort, gain in zip(_EFFORTS, gains, strict=True)})
    flag = not_converged(contest)
    assert (flag.code, flag.severity) == ("not-converged", severity)
    assert (flag.evidence["images"], flag.evidence["radius"]) == (last, 0.5)
