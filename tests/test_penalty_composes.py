"""Where double backprop fails and finite differences do not: compiled models, fused attention, several processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torch.testing import assert_close

from gradreg import ModelError, regularized_loss
from gradreg.penalty.passes import Pass
from gradreg.processes import leave


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(4 * 36, 3))


def images(count: int = 8) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    return torch.rand(count, 1, 8, 8, generator=source), torch.randint(0, 3, (count,), generator=source)


def gradients(model: nn.Module) -> list[Tensor]:
    found = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


@pytest.mark.parametrize("bn", ["train", "frozen"])
@pytest.mark.parametrize("how", [{"lam": 1.0}, {"eps": 0.3}, {"lam": 1.0, "graphs": 2}])
def test_compiled_models(how: dict[str, Any], bn: Any) -> None:
    model, (x, y) = net(), images()
    regularized_loss(model, x, y, bn=bn, **how).loss.backward()
    eager = gradients(model)
    compiled = torch.compile(model, backend="aot_eager")
    for shorter in (False, True):
        out = regularized_loss(compiled, x, y, bn=bn, **how)
        out.backward() if shorter else out.loss.backward()
        for a, b in zip(gradients(model), eager, strict=True):
            assert_close(a, b, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("strength", [{"lam": 1.0}, {"eps": 0.5}])
@pytest.mark.parametrize("h", [0.01, torch.full((8,), 0.01)])
def test_a_graph_that_cannot_be_kept_is_recorded_again(
    h: Any, strength: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain step can compile a backward that gives memory away; whether inductor does depends on the network."""
    model, (x, y) = net(), images()
    regularized_loss(model, x, y, h=h, **strength).loss.backward()
    kept, usual = gradients(model), Pass.input_gradient

    def stingy(self: Pass, *, differentiable: bool, retain: bool = True) -> Tensor:
        if retain:
            raise RuntimeError("This backward function was compiled with non-empty donated buffers …")
        return usual(self, differentiable=differentiable, retain=False)

    monkeypatch.setattr(Pass, "input_gradient", stingy)
    regularized_loss(model, x, y, h=h, **strength).loss.backward()
    for a, b in zip(gradients(model), kept, strict=True):
        assert_close(a, b)
    with pytest.raises(ModelError, match="use graphs=1"):
        regularized_loss(model, x, y, h=h, graphs=2, **strength)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_compiled_models_with_the_default_backend() -> None:
    model, (x, y) = net(), images()
    regularized_loss(model, x, y, lam=1.0).loss.backward()
    eager = gradients(model)
    regularized_loss(torch.compile(model), x, y, lam=1.0).loss.backward()
    for a, b in zip(gradients(model), eager, strict=True):
        assert_close(a, b, rtol=1e-2, atol=1e-4)


def test_double_backprop_still_cannot_be_compiled() -> None:
    """The day this passes, the README may stop saying so."""
    model, (x, y) = torch.compile(net(), backend="aot_eager"), images()
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        regularized_loss(model, x, y, lam=1.0, method="double-backprop").loss.backward()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Linear(8, 32), nn.Linear(32, 96), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mix(self.embed(x.squeeze(1))).unflatten(2, (3, 2, 16)).permute(2, 0, 3, 1, 4).unbind(0)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        logits: Tensor = self.head(mixed.transpose(1, 2).flatten(2).mean(1))
        return logits


def test_fused_attention_where_double_backprop_fails() -> None:
    model, (x, y) = Attention(), images()
    out = regularized_loss(model, x, y, lam=1.0)
    out.loss.backward()
    assert all(g.isfinite().all() and g.any() for g in gradients(model))
    assert_close(out.slope, out.grad_norm, rtol=0.05, atol=1e-4)
    with pytest.raises(RuntimeError, match=r"derivative for .* is not implemented"):
        regularized_loss(model, x, y, lam=1.0, method="double-backprop").loss.backward()


def test_channels_last_stays_channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(4 * 36, 3))
    x = torch.rand(8, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    seen: list[bool] = []
    model[0].register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    regularized_loss(model, x, images()[1], lam=1.0).loss.backward()
    assert all(seen)
    assert len(seen) >= 2


SPREAD: list[dict[str, Any]] = [
    {"lam": 1.0, "bn": "frozen"},
    {"eps": 0.3, "bn": "frozen"},
    {"lam": 1.0, "bn": "frozen", "order": 2},
    {"lam": 1.0, "bn": "frozen", "graphs": 2},
    {"lam": 1.0, "bn": "frozen", "fraction": 0.5, "step": 0},
    {"eps": 0.3, "bn": "train", "fraction": 0.5, "step": 0},
    {"lam": 1.0, "bn": "train"},
]


def _worker(rank: int, folder: str, finish: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = net().double()
    x, y = images()
    half = slice(4 * rank, 4 * rank + 4)
    parallel = DistributedDataParallel(model)
    for number, how in enumerate(SPREAD):
        out = regularized_loss(parallel, x[half].double(), y[half], **how)
        out.backward() if finish == "result" else out.loss.backward()
        save_file(dict(enumerate_names(gradients(model))), f"{folder}/{number}-{rank}.safetensors")
    del parallel, out
    leave()


def enumerate_names(tensors: list[Tensor]) -> Iterator[tuple[str, Tensor]]:
    return ((str(i), tensor) for i, tensor in enumerate(tensors))


@pytest.mark.parametrize("finish", ["loss", "result"])
def test_two_processes_have_the_gradients_of_the_joint_batch(finish: str, tmp_path: Path) -> None:
    start_processes(_worker, args=(str(tmp_path), finish), nprocs=2, start_method="forkserver")
    found = [[load_file(tmp_path / f"{number}-{rank}.safetensors") for rank in (0, 1)] for number in range(len(SPREAD))]
    for first, second in found:
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)
    torch.manual_seed(0)
    model = net().double()
    x, y = images()
    for number, how in enumerate(SPREAD[:4]):
        regularized_loss(model, x.double(), y, **how).loss.backward()
        for name, expected in enumerate_names(gradients(model)):
            assert_close(found[number][0][name], expected, rtol=1e-10, atol=1e-12)
