"""Two processes that normalise by joint statistics give what one gives on the joint batch."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from test_processes import OBJECTIVES, metrics, run
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes
from torch.testing import assert_close

from gradreg.processes import leave
from gradreg.training.joint_norm import joint_statistics

FIRST = 5
"""Images of twelve that the first process has: the shares need not be equal."""


def normalising() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.AvgPool2d(2),
        nn.Conv2d(1, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(144, 12),
        nn.BatchNorm1d(12, momentum=None),
        nn.GELU(),
        nn.Linear(12, 10),
    )


def images() -> Tensor:
    return torch.rand(12, 1, 28, 28, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gradients(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """∇ of a loss with respect to the images, and of the squares of that and the loss with respect to the weights."""
    x = x.clone().requires_grad_()
    loss = model(x).square().sum()
    (at_images,) = torch.autograd.grad(loss, x, create_graph=True)
    again = loss + at_images.square().sum()
    return loss.detach(), at_images.detach(), list(torch.autograd.grad(again, list(model.parameters())))


def alone(model: nn.Module) -> dict[str, Any]:
    loss, at_images, at_weights = gradients(model, images())
    return {"loss": loss, "images": at_images, "weights": at_weights, "buffers": list(model.buffers())}


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = normalising().double()
    with joint_statistics(model):
        loss, at_images, at_weights = gradients(model, images()[:FIRST] if rank == 0 else images()[FIRST:])
    for each in (loss, *at_weights):
        dist.all_reduce(each)
    found = {"loss": loss, "images": at_images, "weights": at_weights, "buffers": list(model.buffers())}
    torch.save(found, f"{folder}/found-{rank}.pt")
    for name in OBJECTIVES:
        run(Path(folder) / f"two-{name}", name, network=normalising, sync_bn=True, ema=0.9)
    leave()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes leave behind."""
    place = tmp_path_factory.mktemp("joint")
    start_processes(worker, args=(str(place),), nprocs=2, start_method="forkserver")
    return place


def test_both_derivatives_and_running_statistics_are_those_of_the_joint_batch(folder: Path) -> None:
    expected = alone(normalising().double())
    found = [torch.load(folder / f"found-{rank}.pt") for rank in range(2)]
    assert_close(torch.cat([each["images"] for each in found]), expected["images"], rtol=1e-9, atol=1e-12)
    for each in found:
        assert_close(each["loss"], expected["loss"], rtol=1e-12, atol=0)
        assert_close(each["weights"], expected["weights"], rtol=1e-9, atol=1e-9)
        assert_close(each["buffers"], expected["buffers"], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_training_follows_the_loss_curve_of_one_process(folder: Path, name: str) -> None:
    run(folder / name, name, network=normalising, ema=0.9)
    one, two = metrics(folder / name), metrics(folder / f"two-{name}")
    for key in ("loss", "train_accuracy", "clean", "held_out_loss", "probe", "grad_norm"):
        curves = [[row[key] for row in rows] for rows in (one, two)]
        assert_close(*curves, rtol=1e-5, atol=1e-5, msg=f"{name}: {key} differs, {curves}")
    a, b = (load_file(folder / run / "last.safetensors") for run in (name, f"two-{name}"))
    assert a.keys() == b.keys()
    for weight in a:
        assert_close(a[weight], b[weight], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("use", [lambda model: model, deepcopy], ids=["itself", "copied"])
def test_alone_it_is_ordinary_batch_normalisation(use: Callable[[nn.Module], nn.Module]) -> None:
    model, x = normalising(), images().float()
    expected = deepcopy(model)(x)
    with joint_statistics(model):
        assert torch.equal(use(model)(x), expected)


def test_afterwards_the_layers_are_as_they_were() -> None:
    model = normalising()
    before = [dict(vars(layer)) for layer in model.modules()]
    with pytest.raises(RuntimeError, match="stop"), joint_statistics(model):
        raise RuntimeError("stop")
    assert [vars(layer).keys() for layer in model.modules()] == [each.keys() for each in before]
