"""Models that nobody here wrote: ones that write into their input, and ones whose logits tie."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gradreg
from gradreg.losses import misclassified


class InPlace(nn.Module):
    """The same model, except that it normalises its input in place."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        x -= 0.5
        logits: Tensor = self.inner(x)
        return logits


class Apart(InPlace):
    """Its honest twin."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.inner(x - 0.5)
        return logits


@pytest.fixture
def plain(linear: nn.Module) -> nn.Module:
    return linear.float()


def test_images_are_never_written_to(plain: nn.Module, images: Tensor) -> None:
    x = images.float()
    y = Apart(plain)(x).argmax(1)
    before = x.clone()
    writes, twin = InPlace(plain).eval(), Apart(plain).eval()
    for threat in ("l2", "linf"):
        found, expected = (gradreg.attack(each, x, y, threat=threat, attacks="quick") for each in (writes, twin))
        torch.testing.assert_close(found.distance, expected.distance)
    pair = [gradreg.certify(each, x[:8], sigma=0.25, n=1000) for each in (writes, twin)]
    assert torch.equal(pair[0].radius, pair[1].radius)
    flags = [[flag.code for flag in gradreg.diagnose(each, x[:8], y[:8], threat="l2")] for each in (writes, twin)]
    assert flags[0] == flags[1]
    evaluated = gradreg.evaluate(writes, (x, y), threat="l2", attacks="quick", regularity="local", diagnosis=False)
    assert not evaluated.wrong.any()
    assert torch.equal(x, before)


@pytest.mark.parametrize("options", [{"lam": 0.1}, {"eps": 0.1}, {"lam": 0.1, "graphs": 2}, {"lam": 0.1, "order": 2}])
def test_a_penalty_of_a_model_that_writes_into_its_input(
    plain: nn.Module, images: Tensor, options: dict[str, float]
) -> None:
    x, y = images.float(), torch.arange(60) % 4
    before, found = x.clone(), []
    for model in (InPlace(plain), Apart(plain)):
        plain.zero_grad()
        out = gradreg.regularized_loss(model, x, y, **options)  # type: ignore[arg-type]
        out.loss.backward()
        found.append((out.loss.item(), plain[1].weight.grad.clone()))  # type: ignore[index]
    assert found[0][0] == found[1][0]
    assert torch.equal(found[0][1], found[1][1])
    assert torch.equal(x, before)


class Rounded(nn.Module):
    """Whole numbers as logits, as of a quantised head: ties are common."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = 3 * self.inner(x)
        return logits + (logits.round() - logits).detach()


def test_a_tie_is_an_error_everywhere(plain: nn.Module, images: Tensor) -> None:
    x = images.float()
    model = Rounded(plain).eval()
    logits = model(x)
    y = logits.argmax(1)
    tied = misclassified(logits, y)
    assert 0 < int(tied.sum()) < len(y), "argmax alone would call all of them right"
    found = gradreg.attack(model, x, y, attacks="quick")
    assert torch.equal(found.distance == 0, tied)
    assert found.robust_accuracy(0) == 1 - float(tied.double().mean())
    evaluated = gradreg.evaluate(model, (x, y), threat="l2", attacks="quick", regularity="local", diagnosis=False)
    order = evaluated.index
    assert torch.equal(evaluated.wrong, tied[order])
    assert evaluated.clean == (int(tied.sum()), 60)
    assert torch.equal(evaluated.threats["l2"].distance == 0, evaluated.wrong)


def test_a_constant_model_is_robust_to_nothing() -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.new_zeros(len(x), 4) + 0 * x.flatten(1).sum(1, keepdim=True)

    x, y = torch.rand(8, 3, 4, 4), torch.arange(8) % 4
    found = gradreg.attack(Constant().eval(), x, y, attacks="quick")
    assert found.robust_accuracy(0) == found.robust_accuracy(1) == 0


def test_a_file_of_one_function_is_not_continued_with_another(plain: nn.Module, images: Tensor, tmp_path: Path) -> None:
    """Both give the same class to every image; only the logits tell them apart."""
    x = images.float()
    y = plain(x).argmax(1)
    ahead = nn.functional.one_hot(y, 4).float()
    gradreg.attack(lambda x: plain(x), x, y, attacks=["fmn"], resume=tmp_path / "pool")
    with pytest.raises(gradreg.ConfigError, match="begun with other weights"):
        gradreg.attack(lambda x: plain(x) + ahead[: len(x)], x, y, attacks=["fmn"], resume=tmp_path / "pool")


def test_polishing_nothing_is_not_robustness(plain: nn.Module, images: Tensor) -> None:
    x = images.float()
    with pytest.raises(gradreg.ConfigError, match="must include one that finds adversarial images"):
        gradreg.attack(plain, x, plain(x).argmax(1), attacks=["polish"])


def test_grey_images_are_not_spread_over_three_channels() -> None:
    model = gradreg.build("compact", classes=10, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2)).eval()
    with pytest.raises(gradreg.ModelError, match=r"shape \(N, 3, H, W\); got \(2, 1, 32, 32\): repeat grey ones"):
        model(torch.rand(2, 1, 32, 32))


@pytest.mark.parametrize("head", ['{"about": 3}', '{"about": {}}', "[]"])
def test_a_damaged_head_of_an_evaluation_is_one_sentence(
    plain: nn.Module, images: Tensor, tmp_path: Path, head: str
) -> None:
    (tmp_path / ".state").mkdir()
    (tmp_path / ".state" / "begun.json").write_text(head)
    x = images.float()
    with pytest.raises(gradreg.GradregError):
        gradreg.evaluate(plain, (x, plain(x).argmax(1)), attacks="quick", regularity="local", folder=tmp_path)
