"""How the loss bends within h: the cosine of the gradients at both ends and the loss halfway, against closed forms."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from gradreg import GradientPenalty, regularized_loss
from gradreg.data import Images
from gradreg.errors import ConfigError
from gradreg.norms import threat
from gradreg.objectives import Draws, Gradient, Moment
from gradreg.training import fit

H = 0.2


class Quadratic(nn.Module):
    """½x'Ax + b'x as the only output, so that the criterion can be the output itself."""

    def __init__(self, size: int = 6, bend: float = 1.0) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(1)
        a = torch.randn(size, size, generator=source, dtype=torch.float64)
        self.a = nn.Parameter(bend * (a + a.T))
        self.b = nn.Parameter(torch.randn(size, generator=source, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return ((x @ self.a * x).sum(1) / 2 + x @ self.b)[:, None]

    def gradient(self, x: Tensor) -> Tensor:
        return (x @ self.a + self.b).detach()


def itself(outputs: Tensor, _: Tensor) -> Tensor:
    return outputs[:, 0]


def points(count: int = 5, size: int = 6) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, size, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return x, torch.zeros(count, dtype=torch.int64)


def looked(model: nn.Module, x: Tensor, y: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
    out = regularized_loss(model, x, y, h=H, criterion=itself, alignment=True, omega=1, **how)
    out.backward()
    assert out.alignment is not None
    assert out.omega is not None
    return out.alignment, out.omega


WAYS: list[dict[str, Any]] = [
    {"eps": H},
    {"eps": 0.5},
    {"lam": 1.0, "scale": "dual"},
    {"lam": 1.0, "scale": "paper"},
    {"lam": 1.0, "scale": "dual", "order": 2},
    {"eps": 0.5, "graphs": 2},
    {"eps": 0.5, "output_slope": 2.0},
    {"eps": 0.5, "fraction": 0.4, "step": 1},
]


@pytest.mark.parametrize("name", ["l2", "linf"])
@pytest.mark.parametrize("how", WAYS)
def test_on_a_quadratic_both_are_known(name: str, how: dict[str, Any]) -> None:
    """∇ℓ(x + hd) = ∇ℓ(x) + hAd; halfway the error is −h²d'Ad/8, and ω(h/2) along d is |d'Ad|h/2."""
    model, (x, y) = Quadratic(), points()
    alignment, omega = looked(model, x, y, threat=name, **how)
    g = model.gradient(x)
    d = threat(name).ascent(g)  # type: ignore[arg-type]
    length = H / 6**0.5 if how.get("scale") == "paper" and name == "linf" else H
    there = model.gradient(x + length * d)
    taken = ~alignment.isnan()
    assert int(taken.sum()) == (2 if "fraction" in how else 5)
    assert_close(alignment[taken], nn.functional.cosine_similarity(g, there)[taken])
    assert_close(omega[taken], (length / 2 * ((d @ model.a.detach()) * d).sum(1).abs())[taken])
    assert torch.equal(omega.isnan(), alignment.isnan())


def test_on_a_linear_loss_nothing_bends() -> None:
    model, (x, y) = Quadratic(bend=0.0), points()
    alignment, omega = looked(model, x, y, threat="linf", eps=0.5)
    assert_close(alignment, torch.ones_like(alignment))
    assert_close(omega, torch.zeros_like(omega), rtol=0, atol=1e-13)


def test_omega_is_below_the_modulus_of_continuity() -> None:
    """Of the gradient of cos(9x): sup |∇ℓ(a) − ∇ℓ(b)| over |a − b| ≤ h/2 is 18·sin(9h/4)."""
    x = torch.linspace(0, 1, 40, dtype=torch.float64)[:, None]
    out = regularized_loss(
        nn.Identity(), x, torch.zeros(40), eps=0.1, h=H, omega=1, criterion=lambda z, _: (9 * z[:, 0]).cos()
    )
    assert out.omega is not None
    limit = 18 * torch.sin(torch.tensor(9 * H / 4)).item()
    assert 0.8 * limit < float(out.omega.max()) <= limit


def conv_net(norm: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    middle: list[nn.Module] = [nn.BatchNorm2d(16)] if norm else []
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), *middle, nn.GELU(), nn.Conv2d(16, 16, 3, padding=1), nn.GELU(),
        nn.Flatten(), nn.Linear(16 * 64, 5),
    )  # fmt: skip


def images() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    return torch.rand(8, 3, 8, 8, generator=source), torch.randint(0, 5, (8,), generator=source)


def flops(**how: Any) -> int:
    """Of a second step: the first also tries whether the model repeats."""
    model, (x, y) = conv_net(), images()
    for _ in range(2):
        with FlopCounterMode(display=False) as counter:
            regularized_loss(model, x, y, **how).backward()
    return int(counter.get_total_flops())


def test_what_looking_costs() -> None:
    """The cosine: the first layer's work. ω: one forward. With two graphs the cosine needs a backward to the images."""
    x, _ = images()
    with FlopCounterMode(display=False) as counter:
        conv_net()(x)
    forward, first_layer = counter.get_total_flops(), 2 * 8 * 64 * 3 * 9 * 16
    how: dict[str, Any] = {"eps": 0.1, "h": 0.1, "noise": torch.zeros_like(x)}
    plain = flops(**how)
    assert flops(**how, alignment=False, omega=0) == plain
    assert flops(**how, alignment=True) - plain == first_layer
    assert flops(**how, omega=1) - plain == forward
    two = flops(eps=0.1, graphs=2, alignment=True) - flops(eps=0.1, graphs=2)
    assert two == forward + first_layer


@pytest.mark.parametrize("how", [{}, {"graphs": 2}, {"lam": 1.0, "eps": None}])
def test_looking_changes_nothing_else(how: dict[str, Any]) -> None:
    found = []
    for looks in (False, True):
        model, (x, y) = conv_net(norm=True), images()
        torch.manual_seed(4)
        given = {"eps": 0.1, "h": 0.1, "noise": 0.1, "alignment": looks, "omega": int(looks)} | how
        out = regularized_loss(model, x, y, **given)
        out.loss.backward()
        found.append([out.loss.detach(), out.slope, *(p.grad for p in model.parameters()), *model.buffers()])
    for before, after in zip(*found, strict=True):
        assert torch.equal(before, after)


def test_models_that_compute_parts_again_and_calls_without_gradients_know_the_cosine_too() -> None:
    model, (x, y) = conv_net(), images()
    how: dict[str, Any] = {"eps": 0.1, "alignment": True, "omega": 1}
    expected = regularized_loss(model, x, y, **how)
    with pytest.raises(ConfigError, match=r"call out.backward\(\) first"):
        _ = expected.alignment
    expected.backward()
    again = regularized_loss(lambda z: checkpoint(model, z, use_reentrant=False), x, y, **how)
    again.loss.backward()
    with torch.no_grad():
        alone = regularized_loss(model, x, y, **how)
    assert expected.alignment is not None
    for other in (again, alone):
        assert_close(other.alignment, expected.alignment)
        assert_close(other.omega, expected.omega)
    assert float(expected.alignment.min()) > 0.5


def test_without_being_asked_nothing_is_known() -> None:
    out = regularized_loss(conv_net(), *images(), eps=0.1)
    assert out.alignment is None
    assert out.omega is None
    skipped = regularized_loss(conv_net(), *images(), eps=0.1, alignment=True, lazy=2, step=1)
    assert skipped.alignment is not None
    assert bool(skipped.alignment.isnan().all())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"alignment": 1}, "alignment must be True or False"),
        ({"omega": -1}, "omega must be at least 0"),
        ({"omega": 1, "method": "double-backprop"}, "alignment= and omega= look at x"),
    ],
)
def test_what_means_nothing_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        regularized_loss(conv_net(), *images(), eps=0.1, **wrong)
    with pytest.raises(ConfigError, match=said):
        GradientPenalty(eps=0.1, **wrong)


def test_every_other_step_looks_halfway() -> None:
    model, penalty = conv_net(), GradientPenalty(eps=0.1, omega=2)
    assert [penalty(model, *images()).omega is None for _ in range(4)] == [False, True, False, True]
    with pytest.raises(ConfigError, match="omega= above 1 needs step="):
        regularized_loss(model, *images(), eps=0.1, omega=2)


def moment(step: int) -> Moment:
    return Moment(step, 0.5, Draws((0, step), 8, slice(8)))


def test_an_objective_logs_what_its_steps_looked_at() -> None:
    model, (x, y) = conv_net(), images()
    objective = Gradient("linf", eps=0.05, alignment=True, omega=2, lazy=2)
    found = []
    for step in range(5):
        outcome = objective(model, x, y, moment(step))
        outcome.backward()
        found.append({name: float(outcome.scalars[name]) for name in ("alignment", "omega")})
    known = [[name for name, value in row.items() if value == value] for row in found]
    assert known == [["alignment", "omega"], [], ["alignment"], [], ["alignment", "omega"]]
    assert not {"alignment", "omega"} & Gradient("linf", eps=0.05)(model, x, y, moment(0)).scalars.keys()
    with pytest.raises(ConfigError, match="alignment= and omega= look at x"):
        Gradient(eps=0.1, omega=3, method="double-backprop")
    with pytest.raises(ConfigError, match="alignment= and omega= look at x"):
        Gradient(eps=0.1, alignment=True, method="double-backprop")


class _StoppedError(Exception):
    pass


def test_a_resumed_run_logs_the_same(tmp_path: Path) -> None:
    x, y = images()
    data = (Images((255 * x.repeat(4, 1, 1, 1)).byte(), y.repeat(4), tuple("abcde")),) * 2
    how: dict[str, Any] = {"epochs": 2, "batch_size": 8, "save_minutes": 0, "probe": None}
    objective = Gradient("linf", eps=0.05, noise=0.05, alignment=True, omega=2)

    def stop(at: Any) -> None:
        if at.step == 6:
            raise _StoppedError

    whole = fit(conv_net(), data, objective, run=tmp_path / "whole", **how).metrics
    with pytest.raises(_StoppedError):
        fit(conv_net(), data, objective, run=tmp_path / "cut", on_step=stop, **how)
    resumed = fit(conv_net(), data, objective, run=tmp_path / "cut", resume=True, **how).metrics
    for name in ("alignment", "omega", "negative_slopes"):
        assert [row[name] for row in resumed] == [row[name] for row in whole]
        assert all(row[name] == row[name] for row in whole)
