"""The pretended device itself: it computes as the host does, refuses what CUDA refuses, and sees every look."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from accelerator.pretended import OnDevice
from accelerator.waits import watching


def test_a_network_gives_the_host_s_logits_and_gradients(device: torch.device) -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(16, 3))
    x, y = torch.rand(5, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1])
    found = []
    for place in ("cpu", device):
        net.zero_grad()
        net.to(place)
        loss = nn.functional.cross_entropy(net(x.to(place)), y.to(place))
        loss.backward()
        found.append(
            [loss.detach().cpu(), *(weight.grad.cpu() for weight in net.parameters() if weight.grad is not None)]
        )
    assert isinstance(net[0].weight, OnDevice)
    assert isinstance(net[0].weight, nn.Parameter)
    assert_close(found[0], found[1])


@pytest.mark.parametrize(
    "mix",
    [
        lambda there, here: there + here,
        lambda there, here: here + there,
        lambda there, here: here.add_(there),
        lambda there, here: torch.cat([there, here]),
        lambda there, here: torch.where(here > 0, there, there),
        lambda there, here: there.gather(0, here.long()),
        lambda there, here: there.index_copy(0, torch.tensor([0]), there[:1]),
        lambda there, here: here[0].clone().add_(there[0]),
        lambda there, here: torch.stack([there[0], here[0]]),
    ],
)
def test_devices_do_not_mix(device: torch.device, mix: Callable[[Tensor, Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        mix(torch.ones(3, device=device), torch.zeros(3))


@pytest.mark.parametrize(
    "use",
    [
        lambda there: there * torch.tensor(2.0),
        lambda there: torch.tensor(2.0) * there,
        lambda there: there[torch.tensor([0, 1, 2])] * 2,
        lambda there: torch.where(there > 0, 2.0, torch.tensor(0.0)),
        lambda there: there.clamp(torch.tensor(2.0)),
    ],
)
def test_host_numbers_and_host_indices_are_taken(device: torch.device, use: Callable[[Tensor], Tensor]) -> None:
    found = use(torch.ones(3, device=device))
    assert found.device == device
    assert found.tolist() == [2.0, 2.0, 2.0]


LOOKS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.any()),
    "float": lambda x: float(x.max()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "copy_": lambda x: torch.zeros(3).copy_(x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "assigned mask": lambda x: x.clone().index_put_((x > 0,), torch.ones(3, device=x.device)),
    "equal": lambda x: torch.equal(x, x),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long()),
    "unique": lambda x: x.unique(),
}
SENDS: dict[str, Callable[[Tensor], object]] = {
    "tensor": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "as_tensor": lambda x: torch.as_tensor(0.5, device=x.device),
    "to": lambda x: torch.ones(3).to(x.device),
    "new_tensor": lambda x: x.new_tensor([1.0]),
    "host index": lambda x: x[torch.tensor([0])],
    "list index": lambda x: x[[0, 1]],
}
NEITHER: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda x: (x * 2 + 1).sum().sqrt(),
    "factories": lambda x: (torch.zeros_like(x), x.new_full((2,), 3.0), torch.arange(3, device=x.device)),
    "where": lambda x: torch.where(x > 0, 1.0, 0.0),
    "filled mask": lambda x: x.clone().__setitem__(x > 0, 0.5),
    "device index": lambda x: x[torch.zeros(2, dtype=torch.int64, device=x.device)],
    "without waiting": lambda x: torch.ones(3).to(x.device, non_blocking=True),
    "slice": lambda x: x[1:],
    "random": lambda x: torch.rand_like(x),
}


@pytest.mark.parametrize("name", LOOKS)
def test_looks_are_seen(device: torch.device, name: str) -> None:
    x = torch.ones(3, device=device)
    with watching() as waits:
        LOOKS[name](x)
    assert len(waits.looks) == 1
    assert waits.sends == []


@pytest.mark.parametrize("name", SENDS)
def test_sends_are_seen(device: torch.device, name: str) -> None:
    x = torch.ones(3, device=device)
    with watching() as waits:
        SENDS[name](x)
    assert len(waits.sends) == 1
    assert waits.looks == []


@pytest.mark.parametrize("name", NEITHER)
def test_work_on_the_device_is_no_wait(device: torch.device, name: str) -> None:
    x = torch.ones(3, device=device)
    with watching() as waits:
        NEITHER[name](x)
    assert not waits.looks + waits.sends


def test_numpy_is_refused(device: torch.device) -> None:
    with pytest.raises(TypeError, match="cpu"):
        torch.ones(3, device=device).numpy()


def test_the_device_has_its_own_random_stream(device: torch.device) -> None:
    host = torch.get_rng_state()
    module = torch.get_device_module(device)
    state = module.get_rng_state(device)
    first = torch.rand(4, device=device).cpu()
    assert torch.equal(torch.get_rng_state(), host)
    module.set_rng_state(state, device)
    assert torch.equal(torch.rand(4, device=device).cpu(), first)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4, device=device).cpu(), torch.rand(4))


def test_generators_belong_to_a_device(device: torch.device) -> None:
    source = torch.Generator(device).manual_seed(5)
    assert (
        torch.rand(2, device=device, generator=source).tolist()
        == torch.rand(2, generator=torch.Generator().manual_seed(5)).tolist()
    )
    with pytest.raises(RuntimeError, match="generator"):
        torch.empty(2, device=device).normal_(generator=torch.Generator())


def test_autocast_is_asked_by_name(device: torch.device) -> None:
    with torch.autocast(device.type, torch.bfloat16):
        assert torch.is_autocast_enabled(device.type)
    assert not torch.is_autocast_enabled(device.type)
