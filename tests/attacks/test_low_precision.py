"""A search in bfloat16 makes the same promises: what it returns is adversarial as the model computes, asked alone."""

from pathlib import Path

import pytest
import torch
from attack_models import exact_distance, images, linear_model, small_network
from torch import Tensor, nn

from gradreg.attacks import attack, fmn
from gradreg.errors import ConfigError, PrecisionError
from gradreg.norms import ThreatName, threat


class Arithmetic(nn.Module):
    """Remembers how many rows were asked in low and in full precision, forwards and backwards."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.low = self.full = self.back = 0

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_autocast_enabled("cpu"):
            assert torch.get_autocast_dtype("cpu") == torch.bfloat16
            self.low += len(x)
        else:
            self.full += len(x)
        logits: Tensor = self.model(x)
        if logits.requires_grad:
            logits.register_hook(self.came_back)
        return logits

    def came_back(self, gradient: Tensor) -> None:
        self.back += len(gradient)


class Rounded(nn.Module):
    """A linear model that low precision knows to two digits only, as autocast does to a matrix product."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.model = linear_model(pixels, classes=4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits.bfloat16() if torch.is_autocast_enabled("cpu") else logits


class Optimist(nn.Module):
    """A hyperplane that low precision sees nearer by a known share of the way, so that claims between the two fail."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share, self.training = share, False
        self.asked: list[tuple[bool, int]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.asked.append((torch.is_autocast_enabled("cpu"), len(x)))
        height = x.flatten(1)[:, 0] - 0.9 * (1 - self.share * torch.is_autocast_enabled("cpu"))
        return torch.stack([-height, height], 1)


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
@pytest.mark.parametrize("share", [-0.05, 0.0, 0.05])
def test_claims_that_fail_are_taken_back_and_lead_farther_out(norm: ThreatName, share: float) -> None:
    """What is found lies behind the true plane, and near it, on whichever side of it low precision puts its own."""
    x = torch.full((3, 1, 2, 2), 0.4) - torch.tensor([0.0, 0.1, 0.2]).view(3, 1, 1, 1)
    exact = 0.9 - x.flatten(1)[:, 0]
    result = fmn(Optimist(share), x, torch.zeros(3, dtype=torch.int64), threat=norm, steps=60, precision="bf16")
    assert result.success.all()
    assert (result.distance >= exact).all()
    assert (result.distance <= exact + 1.03 * max(0, -share) * 0.9 + 0.02).all()


def test_claims_are_asked_about_together() -> None:
    model, x = Optimist(0.05), torch.full((6, 1, 2, 2), 0.4)
    result = fmn(model, x, torch.zeros(6, dtype=torch.int64), threat="l2", steps=40, precision="bf16")
    low = [i for i, (low, _) in enumerate(model.asked) if low]
    # After 1, 3, 7, 15, 23, … of forty evaluations at most, and at the end.
    full = [rows for low, rows in model.asked[low[0] : low[-1]] if not low]
    assert len(low) == 40
    assert 1 <= len(full) <= 6
    assert sum(rows for _, rows in model.asked) == int(result.forwards.sum())


@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
@pytest.mark.parametrize("eps", [None, 0.05])
def test_everything_returned_holds_in_full_precision(norm: ThreatName, eps: float | None) -> None:
    model, x = small_network(), images(8, 20, "walls")
    y = model(x).argmax(1)
    y[2] = (y[2] + 1) % 4
    result = attack(model, x, y, threat=norm, attacks="quick", precision="bf16", eps=eps)
    assert result.distance[2] == 0
    assert result.success.any()
    for i in (result.success & (result.distance > 0)).nonzero().flatten().tolist():
        alone = model(result.adversarial[i : i + 1])[0]
        assert alone.argmax() != y[i]
        torch.testing.assert_close(threat(norm).norm(result.adversarial - x)[i], result.distance[i])
    assert result.adversarial.min() >= 0
    assert result.adversarial.max() <= 1


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_distances_on_a_linear_model_are_nearly_exact(norm: ThreatName) -> None:
    """Logits of two digits mislead the search; polishing, which is not in low precision, finds the boundary."""
    model, x = Rounded(20).eval(), images(12, 20, "middle")
    y = model(x).argmax(1)
    exact = exact_distance(model.model, x, y, norm)
    found = attack(model, x, y, threat=norm, precision="bf16").distance
    assert (found >= exact * (1 - 1e-5)).all()
    assert (found / exact).median() < 1.02
    assert (found / exact).max() < 1.3


def test_the_search_is_in_low_precision_and_all_of_it_is_counted() -> None:
    model, x = Arithmetic(small_network()).eval(), images(8, 20, "middle")
    y = model.model(x).argmax(1)
    result = fmn(model, x, y, steps=30, precision="bf16")
    assert model.low > 0.6 * (model.low + model.full)
    assert model.low + model.full == int(result.forwards.sum())
    assert model.back == int(result.backwards.sum()) == model.low
    assert result.success.all()
    model.low = 0
    fmn(model, x, y, steps=30)
    assert model.low == 0


@pytest.mark.parametrize("budget", [5, 50, 201])
def test_a_budget_is_kept_in_low_precision_too(budget: int) -> None:
    model, x = small_network(), images(4, 20, "middle")
    result = attack(model, x, model(x).argmax(1), budget=budget, precision="bf16")
    assert result.propagations.max() <= budget


def test_a_file_of_another_precision_is_not_continued(tmp_path: Path) -> None:
    model, x = small_network(), images(4, 20, "middle")
    y = model(x).argmax(1)
    path = tmp_path / "pool.safetensors"
    first = attack(model, x, y, attacks="quick", resume=path, precision="bf16")
    again = attack(model, x, y, attacks="quick", resume=path, precision="bf16")
    assert torch.equal(first.distance, again.distance)
    with pytest.raises(ConfigError, match="precision"):
        attack(model, x, y, attacks="quick", resume=path)


def test_what_autocast_would_leave_alone_is_refused() -> None:
    model, x = small_network().double(), images(4, 20, "middle").double()
    with pytest.raises(ConfigError, match=r"needs a model in torch\.float32; got torch\.float64"):
        attack(model, x, model(x).argmax(1), precision="bf16")
    with pytest.raises(ConfigError, match="precision must be one of 'model', 'bf16'; got 'fp8'"):
        attack(small_network(), x.float(), torch.zeros(4, dtype=torch.long), precision="fp8")


def test_logits_that_low_precision_makes_one_number_are_refused() -> None:
    # In bfloat16 all logits are 100, nothing is found, and the model would look robust.
    model, x = linear_model(20, classes=4), images(6, 20, "middle")
    y = model(x).argmax(1)
    with pytest.raises(PrecisionError, match="rounded to the same number: they are as large as 1e\\+02"):
        attack(lambda pixels: 100 + 1e-3 * model(pixels), x, y, attacks=["deepfool"], precision="bf16")
    assert attack(lambda pixels: 1e-3 * model(pixels), x, y, attacks=["deepfool"], precision="bf16").success.all()
