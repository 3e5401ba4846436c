"""What a call leaves behind: nothing but the loss. Modes, statistics, random streams and flags are as before."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from gradreg import ModelError, regularized_loss
from gradreg.losses import cross_entropy


def normed_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(4 * 36, 8), nn.BatchNorm1d(8)
    ).append(nn.Linear(8, 3))


def images(count: int = 6) -> tuple[Tensor, Tensor]:
    return torch.rand(count, 1, 8, 8), torch.randint(0, 3, (count,))


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_running_statistics_are_updated_once_by_the_clean_batch(order: int, fraction: float) -> None:
    model, (x, y) = normed_net(), images()
    reference = normed_net()
    reference.load_state_dict(model.state_dict())
    reference(x)
    regularized_loss(model, x, y, lam=1.0, h=0.5, order=order, fraction=fraction, step=0)  # type: ignore[arg-type]
    for name, value in reference.state_dict().items():
        assert_close(model.state_dict()[name], value, rtol=0, atol=0)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = normed_net()[:3], nn.Linear(4 * 36, 3)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(checkpoint(self.body, x, use_reentrant=False).flatten(1))
        return found


def test_double_backprop_does_not_move_checkpointed_statistics_twice() -> None:
    """`loss.backward()` would compute the checkpointed part again, and move them again."""
    model, (x, y) = Checkpointed(), images()
    for options in ({}, {"bn": "frozen"}):
        with pytest.raises(ModelError, match=r"double-backprop' leave activation checkpointing to .*: use method='fd'"):
            regularized_loss(model, x, y, lam=1.0, method="double-backprop", **options)  # type: ignore[arg-type]
    model.eval()
    before = snapshot(model)
    regularized_loss(model, x, y, lam=1.0, method="double-backprop").loss.backward()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_frozen_batch_norm_treats_every_image_on_its_own_and_remembers_nothing() -> None:
    model, (x, y) = normed_net(), images()
    model(x)
    before = snapshot(model)
    together = regularized_loss(model, x, y, lam=1.0, bn="frozen")
    alone = torch.cat(
        [regularized_loss(model, x[i : i + 1], y[i : i + 1], lam=1.0, bn="frozen").grad_norm for i in range(6)]
    )
    assert_close(together.grad_norm, alone)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())


def test_batch_statistics_let_images_influence_each_other() -> None:
    """The authors' behaviour, on by default and said in the docstring: not a per-image gradient."""
    model, (x, y) = normed_net(), images()
    first = regularized_loss(model, x, y, lam=1.0).grad_norm[0]
    others = torch.cat([x[:1], torch.rand(5, 1, 8, 8)])
    assert (regularized_loss(model, others, y, lam=1.0).grad_norm[0] - first).abs() > 1e-4


def test_modes_flags_and_inputs_are_as_before() -> None:
    model, (x, y) = normed_net(), images()
    model[0].requires_grad_(False)
    model[1].eval()
    modes = [module.training for module in model.modules()]
    flags = [p.requires_grad for p in model.parameters()]
    for bn in ("train", "frozen"):
        regularized_loss(model, x, y, lam=1.0, bn=bn).loss.backward()
        assert [module.training for module in model.modules()] == modes
        assert [p.requires_grad for p in model.parameters()] == flags
        assert not x.requires_grad
        assert x.grad is None
        assert all(layer.track_running_stats for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())


def test_modes_come_back_when_the_model_raises() -> None:
    model, (x, y) = normed_net(), images()
    calls = 0

    def breaks_later(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("out of memory")

    model[6].register_forward_pre_hook(breaks_later)
    with pytest.raises(RuntimeError, match="out of memory"):
        regularized_loss(model, x, y, lam=1.0)
    assert all(layer.track_running_stats for layer in model.modules() if isinstance(layer, nn.BatchNorm2d))


def test_both_passes_see_the_same_dropout_mask() -> None:
    """With another mask the difference over h = 1e-4 would be the masks' difference, thousands of times the slope."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 3)).double()
    x, y = torch.rand(6, 1, 8, 8, dtype=torch.float64), torch.randint(0, 3, (6,))
    for fraction in (1.0, 0.5):
        out = regularized_loss(model, x, y, lam=1.0, h=1e-4, fraction=fraction, step=0)
        looked = ~out.slope.isnan()
        assert_close(out.slope[looked], out.grad_norm[looked], rtol=1e-3, atol=0)


def test_the_global_random_stream_moves_as_for_one_ordinary_forward() -> None:
    x, y = images()
    for model in (
        nn.Sequential(nn.Flatten(), nn.Linear(64, 3)),
        nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 3)),
    ):
        before = torch.get_rng_state()
        cross_entropy(model(x), y)
        ordinary = torch.get_rng_state()
        torch.set_rng_state(before)
        regularized_loss(model, x, y, lam=1.0, order=2)
        assert torch.equal(torch.get_rng_state(), ordinary)


def test_under_no_grad_it_measures_and_keeps_no_graph() -> None:
    model, (x, y) = normed_net().eval(), images()
    with torch.no_grad():
        out = regularized_loss(model, x, y, lam=1.0)
    assert not out.loss.requires_grad
    assert_close(out.loss, regularized_loss(model, x, y, lam=1.0).loss.detach())


def test_nothing_that_is_logged_holds_the_graph() -> None:
    """Logged tensors with a graph are how a training run fills its memory."""
    model, (x, y) = normed_net(), images()
    for how in ({}, {"method": "double-backprop"}):
        out = regularized_loss(model, x, y, lam=1.0, **how)  # type: ignore[arg-type]
        assert out.loss.requires_grad
        assert not any(v.requires_grad for v in (out.clean, out.penalty, out.logits, out.grad_norm, out.slope))


def test_gradients_accumulate_over_micro_batches() -> None:
    model, (x, y) = normed_net().eval(), images()
    regularized_loss(model, x, y, lam=1.0).loss.backward()
    whole = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for half in (slice(0, 3), slice(3, 6)):
        (regularized_loss(model, x[half], y[half], lam=1.0).loss / 2).backward()
    for a, b in zip(whole, (p.grad for p in model.parameters()), strict=True):
        assert b is not None
        assert_close(b, a, rtol=1e-4, atol=1e-6)


class NoSync(TorchDispatchMode):
    """Refuses the operations that make a host wait for its device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        waits = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal.default")
        assert not any(name in str(func) for name in waits), f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("threat", ["l2", "linf", "l1"])
def test_no_device_sync(threat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first step, which finds out what the model moves."""
    # As on an accelerator: on the host, where looking costs nothing, pixels are checked.
    monkeypatch.setattr("gradreg.checks.tensors.on_host", lambda tensor: False)
    model, (x, y) = normed_net(), images()
    regularized_loss(model, x, y, threat=threat, lam=1.0).backward()  # type: ignore[arg-type]
    with NoSync():  # type: ignore[no-untyped-call]
        for how in ({}, {"fraction": 0.5, "step": 1}, {"order": 2}, {"squared": False}, {"graphs": 2}):
            regularized_loss(model, x, y, threat=threat, lam=1.0, **how).backward()  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="waits"), NoSync():  # type: ignore[no-untyped-call]
        x.max().item()
