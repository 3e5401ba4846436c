"""Models in other precisions, and built in other ways."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from kinds import A_MODULE, BLIND, PRECISE, TRAINED, Odd, X, around, convolutional, linear, seeded, straight
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# Precision.


class HalfHead(nn.Module):
    """A head in half precision that is declared before the float32 body."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = linear()[1].half(), nn.Flatten()
        self.scale = nn.Parameter(torch.ones(()))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head((self.scale * self.body(x)).half())
        return logits.float()


class HalfInside(nn.Module):
    """bf16 weights between float32 pixels and float32 logits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = linear().bfloat16()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x.bfloat16())
        return logits.float()


def _autocast(net: nn.Module, x: Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return net(x).float()


_OTHER_DTYPE = "x must have the model's dtype"
PRECISIONS = {
    "float64": Odd(lambda: linear().double(), linear, dict.fromkeys(TRAINED[:2], _OTHER_DTYPE), exact=True),
    "bfloat16": Odd(lambda: linear().bfloat16(), None, dict.fromkeys(TRAINED, _OTHER_DTYPE)),
    "float16": Odd(lambda: linear().half(), None, dict.fromkeys(TRAINED, _OTHER_DTYPE)),
    "float16 head": Odd(HalfHead, None),
    "bfloat16 inside": Odd(HalfInside, None, PRECISE, may_answer=True),
    "autocast inside": Odd(around(_autocast), None),
}

# How it is built.


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(48, 48), nn.Linear(48, 48), nn.Linear(48, 4)
        self.second.weight = self.first.weight
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.gelu(self.second(F.gelu(self.first(x.flatten(1))))))
        return logits


class Adapter(nn.Module):
    """A frozen network and a small trained correction."""

    def __init__(self) -> None:
        super().__init__()
        self.net = linear().requires_grad_(False)
        source = torch.Generator().manual_seed(3)
        self.down = nn.Parameter(0.1 * torch.randn(48, 2, generator=source))
        self.up = nn.Parameter(0.1 * torch.randn(2, 4, generator=source))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x) + x.flatten(1) @ self.down @ self.up
        return logits


class Wrapper(nn.Module):
    """As data-parallel and other wrappers do."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.eval()

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self.module(*arguments, **keywords)


class Ensemble:
    """No module at all."""

    def __init__(self) -> None:
        self.members = [linear(), Adapter()]

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = sum(member(x) for member in self.members)
        return logits / 2


def _hooked() -> Any:
    net = linear()
    net[1].register_forward_hook(lambda layer, given, logits: logits * 1.0)
    net.register_forward_pre_hook(lambda whole, given: (given[0] + 0,))
    return net


def _frozen() -> Any:
    net = convolutional()
    for weight in net[:3].parameters():
        weight.requires_grad_(False)
    return net


def _lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(4)).eval()


def _exported() -> Any:
    shapes = ({0: torch.export.Dim("n")},)
    return torch.export.export(linear(), (torch.rand(5, 3, 4, 4),), dynamic_shapes=shapes).module()


_ANY_MODULE = {"fit": A_MODULE}
_REENTRANT = "reentrant activation checkpointing"
BUILT = {
    "linear": Odd(linear, lambda: copy.deepcopy(linear()), exact=True),
    "batch norm": Odd(convolutional, around(lambda net, x: net(x), convolutional)),
    "checkpointed": Odd(
        around(lambda net, x: net[3:](checkpoint(net[:3], x, use_reentrant=False)), convolutional),
        convolutional,
    ),
    "checkpointed, reentrant": Odd(
        around(lambda net, x: net[3:](checkpoint(net[:3], x, use_reentrant=True)), convolutional),
        convolutional,
        {"": _REENTRANT, "certify": "", "diagnose": _REENTRANT, **dict.fromkeys(TRAINED, _REENTRANT)},
    ),
    "tied weights": Odd(seeded(Tied), seeded(Tied)),
    "adapter": Odd(Adapter, Adapter),
    "partly frozen": Odd(_frozen, _frozen),
    "all frozen": Odd(
        lambda: linear().requires_grad_(False),
        around(lambda net, x: net(x), lambda: linear().requires_grad_(False)),
        {"fit": "No weight of the model"},
        exact=True,
    ),
    "hooks": Odd(_hooked, linear, exact=True),
    "lazy": Odd(_lazy, None, {"": "weights without a shape", "diagnose": "weights without a shape"}),
    "on the meta device": Odd(lambda: linear().to("meta"), None, {"": "meta", "*": "meta"}),
    "scripted": Odd(lambda: torch.jit.script(convolutional()), convolutional),
    "traced": Odd(lambda: torch.jit.trace(linear(), X), linear, exact=True),
    "symbolically traced": Odd(lambda: torch.fx.symbolic_trace(convolutional()), convolutional),
    "exported": Odd(_exported, linear, {"fit": "cannot be trained"}, exact=True),
    "compiled": Odd(
        lambda: torch.compile(convolutional(), backend="aot_eager"), convolutional, {"curvature": "donated buffers"}
    ),
    "data parallel": Odd(lambda: nn.DataParallel(linear()).eval(), linear, exact=True),
    "wrapped twice": Odd(lambda: Wrapper(Wrapper(linear())), linear, exact=True),
    "an object": Odd(Ensemble, Ensemble, _ANY_MODULE),
    "a function": Odd(lambda: (lambda net: lambda x: net(x))(linear()), linear, _ANY_MODULE, exact=True),
    "channels last": Odd(lambda: convolutional().to(memory_format=torch.channels_last), convolutional),
    "views of contiguous input": Odd(
        around(lambda net, x: net(x.view(len(x), 48).view(-1, 3, 4, 4))), linear, exact=True
    ),
    "quantised input": Odd(around(lambda net, x: net((7 * x).round() / 7)), None, BLIND),
    "quantised input, straight through": Odd(
        around(lambda net, x: net(straight(x, (7 * x).round() / 7))), None, PRECISE
    ),
}
