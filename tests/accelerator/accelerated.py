"""Twins: the same small network and images on the host and on the device, and their answers side by side."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from accelerator import pretended

HOST = torch.device("cpu")
CLASSES = 5


class Dropped(nn.Module):
    """Dropout whose masks are the same numbers on both sides; torch's own takes another way on each device."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand_like(x) < 0.8) / 0.8 if self.training else x


def network(*extra: nn.Module) -> nn.Module:
    """A smooth network in double precision, so that the order of summation cannot turn a search around."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), *extra, nn.GELU(), nn.AvgPool2d(2), nn.Flatten())
        net.append(nn.Linear(6 * 16, CLASSES))
        for weight in net.parameters():
            nn.init.normal_(weight, std=0.4)
        net.double().eval()
        with torch.no_grad():  # so that every class is the answer for some images
            net[-1].bias -= net(torch.rand(99, 3, 8, 8, dtype=torch.float64)).mean(0)
    return net


def images(count: int = 12) -> tuple[Tensor, Tensor]:
    """Images, and labels that the network gives to most of them."""
    x = torch.rand(count, 3, 8, 8, generator=torch._C.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        y = network()(x).argmax(1)
    y[::6] = (y[::6] + 1) % CLASSES
    return x, y


def on(place: torch.device, *values: Any) -> Any:
    """Copies on that device of modules and tensors; of one value, itself."""
    found = [deepcopy(each).to(place) for each in values]
    return found if len(found) > 1 else found[0]


def places() -> Iterator[torch.device]:
    """The host and the device, each with its random stream from the same seed."""
    for place in (HOST, pretended.device()):
        torch.manual_seed(0)
        yield place


def assert_same(there: Any, here: Any, *, place: torch.device | None = None, atol: float = 1e-9) -> None:
    """The same answer, whatever it is made of; tensors of the first one live on the device, or in another `place`."""
    if isinstance(here, Tensor):
        assert there.device == (place or pretended.device()), "a result must live on the model's device"
        assert_close(there.cpu(), here, rtol=1e-6, atol=atol, equal_nan=True)
    elif isinstance(here, float):
        assert_close(there, here, rtol=1e-6, atol=atol, equal_nan=True)
    elif is_dataclass(here):
        assert type(there) is type(here)
        assert_same(
            *({each.name: getattr(of, each.name) for each in fields(here)} for of in (there, here)),
            place=place,
            atol=atol,
        )
    elif isinstance(here, Mapping):
        assert there.keys() == here.keys()
        for name in here:
            assert_same(there[name], here[name], place=place, atol=atol)
    elif isinstance(here, list | tuple):
        assert len(there) == len(here)
        for each in zip(there, here, strict=True):
            assert_same(*each, place=place, atol=atol)
    else:
        assert there == here
