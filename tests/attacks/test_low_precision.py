"""A search in bfloat16 makes the same promises: what it returns is adversarial as the model computes, asked alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from attack_models import exact_distance, images, linear_model, small_network
from torch import Tensor, nn

from gradreg.attacks import attack, fmn
from gradreg.errors import ConfigError, ModelError, PrecisionError
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
@pytest.mark.parametrize("share", [-0.02, 0.0, 0.02])
def test_claims_that_fail_are_taken_back_and_lead_farther_out(norm: ThreatName, share: float) -> None:
    """What is found lies behind the true plane, and near it, on whichever side of it low precision puts its own."""
    x = torch.full((3, 1, 2, 2), 0.4) - torch.tensor([0.0, 0.1, 0.2]).view(3, 1, 1, 1)
    exact = 0.9 - x.flatten(1)[:, 0]
    result = fmn(Optimist(share), x, torch.zeros(3, dtype=torch.int64), threat=norm, steps=60, precision="bf16")
    assert result.success.all()
    assert (result.distance >= exact).all()
    assert (result.distance <= exact + 1.03 * max(0, -share) * 0.9 + 0.02).all()


def test_claims_are_asked_about_together() -> None:
    model, x = Optimist(0.02), torch.full((6, 1, 2, 2), 0.4)
    result = fmn(model, x, torch.zeros(6, dtype=torch.int64), threat="l2", steps=40, precision="bf16")
    low = [i for i, (low, _) in enumerate(model.asked) if low][1:]  # the first compares it with the model's own
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
    assert model.back == int(result.backwards.sum()) == model.low - len(x)
    assert result.success.all()
    model.low = 0
    fmn(model, x, y, steps=30)
    assert model.low == 0


@pytest.mark.parametrize("budget", [7, 50, 201])
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


@pytest.mark.parametrize(("shift", "lost"), [(0.0, False), (100.0, True)])
def test_margins_that_low_precision_loses_are_refused(shift: float, lost: bool) -> None:
    # In bfloat16 all logits are 100, nothing is found, and the model would look robust.
    model, x = small_network(), images(6, 20, "middle")
    with torch.no_grad():
        model.get_parameter("3.bias").add_(shift)
    y = model(x).argmax(1)
    if lost:
        with pytest.raises(PrecisionError, match=r"Rounding in bfloat16 makes up \d+% of the median margin"):
            attack(model, x, y, attacks=["deepfool"], precision="bf16")
    else:
        assert attack(model, x, y, attacks=["deepfool"], precision="bf16").success.all()


@pytest.mark.parametrize("level", [0.0, 0.1, 100.0, 1000.0])
def test_a_large_mean_that_the_head_takes_off_does_not_look_like_robustness(level: float) -> None:
    """The logits are as small as ever, so that nothing shows in them; under autocast they were rounded on the way."""

    def model(pixels: Tensor) -> Tensor:
        high: Tensor = body(pixels) @ weight.T + level
        return high - high.mean(1, keepdim=True)

    network = small_network()
    body, weight = nn.Sequential(*list(network.children())[:-1]), network.get_parameter("3.weight")
    x = images(40, 20, "middle")
    y = model(x).argmax(1)
    if level >= 100:
        with pytest.raises(PrecisionError, match="of the median margin"):
            attack(model, x, y, attacks="quick", precision="bf16")
        return
    exact, found = attack(model, x, y, attacks="quick"), attack(model, x, y, attacks="quick", precision="bf16")
    assert found.success.sum() >= exact.success.sum() - 1
    assert abs(found.robust_accuracy(0.1) - exact.robust_accuracy(0.1)) <= 0.05


class Broken(nn.Module):
    """Finite under autocast; in full precision not a number for images that are perturbed."""

    def __init__(self, clean: Tensor) -> None:
        super().__init__()
        self.model, self.clean, self.asked, self.training = linear_model(20, classes=4), clean.flatten(1), 0, False

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        if torch.is_autocast_enabled("cpu"):
            return logits
        perturbed = ~(x.flatten(1)[:, None] == self.clean).all(2).any(1)
        self.asked += int(perturbed.sum())
        return logits.masked_fill(perturbed[:, None], torch.nan)


@pytest.mark.parametrize("budget", range(7, 40))
@pytest.mark.parametrize("name", ["fmn", "pgd"])
def test_logits_that_are_not_finite_are_an_error_whatever_the_budget(name: str, budget: int) -> None:
    """The last claims are asked about when the search is over, and what was looked at before no longer holds."""
    x = images(3, 20, "middle")
    model = Broken(x)
    y = model(x).argmax(1)
    told = ""
    try:
        attack(model, x, y, attacks=[name], threat="l2", eps=1.0, budget=budget, precision="bf16")
    except ModelError as error:
        told = str(error)
    assert ("not finite for a perturbed image" in told) is (model.asked > 0)


class Contrary(nn.Module):
    """Negates its logits under autocast for images that are far from grey, so that claims there are false."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.rows, self.back, self.training = small_network(), 0, 0, False

    def forward(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        assert not x.isnan().any()
        logits: Tensor = self.model(x)
        if logits.requires_grad:
            logits.register_hook(self.came_back)
        strange = torch.is_autocast_enabled("cpu") & ((x - 0.5).flatten(1).abs().amax(1) > 0.06)
        return torch.where(strange[:, None], -logits, logits)

    def came_back(self, gradient: Tensor) -> None:
        self.back += len(gradient)


@pytest.mark.parametrize(
    "options", [{}, {"budget": 40}, {"eps": (0.05, 0.3)}, {"budget": 40, "eps": (0.05, 0.3)}], ids=str
)
@pytest.mark.parametrize(
    "name", ["square", "fmn", "pgd", "boundary", "carlini_wagner", "deepfool", "logbarrier", "ddn"]
)
def test_false_claims_do_no_harm(name: str, options: dict[str, Any]) -> None:
    model, x = Contrary(), images(9, 20, "middle")
    y = small_network()(x).argmax(1)
    result = attack(model, x, y, threat="l2", attacks=[name], precision="bf16", **options)
    assert (model.rows, model.back) == (int(result.forwards.sum()), int(result.backwards.sum()))
    assert result.propagations.max() <= options.get("budget", torch.inf)
    for i in (result.success & (result.distance > 0)).nonzero().flatten().tolist():
        assert int(small_network()(result.adversarial[i : i + 1]).argmax()) != y[i]
    for i in (result.distance == torch.inf).nonzero().flatten().tolist():
        assert torch.equal(result.adversarial[i], x[i])


def test_a_budget_that_allows_no_claim_is_refused() -> None:
    model, x = small_network(), images(3, 20, "middle")
    y = model(x).argmax(1)
    with pytest.raises(ConfigError, match="budget must be at least 7"):
        attack(model, x, y, attacks=["fmn"], budget=6, precision="bf16")
    with pytest.raises(ConfigError, match="budget must be at least 9"):
        attack(model, x, y, attacks=["fmn"], budget=8, precision="bf16", quantize=8)
    assert attack(model, x, y, attacks=["fmn"], budget=7, precision="bf16").backwards.min() == 1
