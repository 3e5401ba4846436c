"""Models that do more than answer: they write into their input, or keep state."""

from typing import Any

import torch
from kinds import A_MODULE, MIXES, PRECISION, TRAINED, Around, Odd, around, centred, linear, seeded
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

# It writes into its input.


def _in_place(net: nn.Module, x: Tensor) -> Any:
    x -= 0.1
    return net(x)


def _through_a_view(net: nn.Module, x: Tensor) -> Any:
    x.view(len(x), -1)[:, :] -= 0.1
    return net(x)


def _without_grad(net: nn.Module, x: Tensor) -> Any:
    with torch.no_grad():
        x.sub_(0.1)
    return net(x)


def _data(net: nn.Module, x: Tensor) -> Any:
    x.data -= 0.1
    return net(x)


def _numpy(net: nn.Module, x: Tensor) -> Any:
    x.detach().numpy()[...] -= 0.1
    return net(x)


def _out(net: nn.Module, x: Tensor) -> Any:
    with torch.no_grad():
        torch.sub(x, 0.1, out=x)
    return net(x)


def _afterwards(net: nn.Module, x: Tensor) -> Any:
    logits = net(x + 0)
    x.data.zero_()
    return logits


class OneOutput(nn.Module):
    """Hands out the same memory every time, as a captured graph does."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.memory = linear(), {0: torch.zeros(0, 4)}
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        if logits.requires_grad:
            return logits
        return self.memory.setdefault(len(x), torch.empty_like(logits)).copy_(logits)


WRITES = {
    "in place": Odd(around(_in_place), centred),
    "in place through a view": Odd(around(_through_a_view), centred),
    "in place under no_grad": Odd(around(_without_grad), centred),
    "in place through .data": Odd(around(_data), centred),
    "in place through NumPy": Odd(around(_numpy), centred),
    "in place with out=": Odd(around(_out), centred),
    "in place when done": Odd(around(_afterwards), linear, exact=True),
    "one memory for all answers": Odd(OneOutput, linear, exact=True),
    "returns its input": Odd(
        lambda: lambda x: x.flatten(1),
        lambda: lambda x: x.flatten(1).clone(),
        {"fit": A_MODULE},
    ),
}

# It keeps state, also in eval mode.


class Remembers(nn.Module):
    """Subtracts a mean that follows the images: in a buffer, a tensor, a list or a tuple."""

    memory: Any

    def __init__(self, where: str, momentum: float = 1e-3) -> None:
        super().__init__()
        self.net, self.where, self.momentum = linear(), where, [momentum]
        mean = torch.full((1, 3, 1, 1), 0.1)
        if where == "buffer":
            self.register_buffer("memory", mean)
        else:
            self.memory = {"attribute": mean, "list": [mean], "tuple": (mean, 0)}[where]
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        mean = self.memory if isinstance(self.memory, Tensor) else self.memory[0]
        logits: Tensor = self.net(x - mean)
        following = mean.lerp(x.detach().mean((0, 2, 3), keepdim=True), self.momentum[0])
        if self.where == "buffer":
            self.memory.copy_(following)
        elif self.where == "list":
            self.memory[0] = following
        else:
            self.memory = following if self.where == "attribute" else (following, 1)
        return logits


class Counts(nn.Module):
    """Counts its calls in a buffer, a number and a list."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net, self.number, self.seen = linear(), 0, [0]
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.number += 1
        self.seen.append(len(x))
        logits: Tensor = self.net(x)
        return logits


class Adapts(nn.Module):
    """Takes a step towards confident answers whenever it is asked, as adaptation at test time does."""

    def __init__(self) -> None:
        super().__init__()
        self.net = linear()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            logits: Tensor = self.net(x.detach())
            entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
            (step,) = torch.autograd.grad(entropy, self.net[1].bias)
        with torch.no_grad():
            self.net[1].bias.sub_(0.01 * step)
        logits = self.net(x)
        return logits


class Renormalises(nn.Module):
    """Cuts its weights to a largest norm in every forward, as constrained layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = linear()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        layer = self.net[1]
        layer.weight.data = torch.renorm(layer.weight.data, 2, 0, 1.0)
        logits: Tensor = self.net(x)
        return logits


def renormalised() -> Any:
    net = linear()
    net[1].weight.data = torch.renorm(net[1].weight.data, 2, 0, 1.0)
    return net


def parametrised() -> Any:
    head = parametrizations.weight_norm(nn.Linear(16, 4))
    return nn.Sequential(nn.Flatten(), parametrizations.spectral_norm(nn.Linear(48, 16)), nn.GELU(), head).eval()


def unparametrised() -> Any:
    net = parametrised()
    for layer in (net[1], net[3]):
        parametrize.remove_parametrizations(layer, "weight")
    return net


def instance_norm() -> nn.Module:
    norm = nn.InstanceNorm2d(6, track_running_stats=True)
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), norm, nn.GELU(), nn.Flatten(), nn.Linear(96, 4)).eval()


def instance_norm_by_hand() -> nn.Module:
    net = instance_norm()
    return Around(net, lambda net, x: net[2:](net[0](x) / (1 + 1e-5) ** 0.5)).eval()


class Observer(nn.Module):
    """Rounds to 255 levels of the range it has seen, which grows with every image, in eval mode too."""

    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.net = linear()
        self.register_buffer("low", torch.tensor(0.45))
        self.register_buffer("high", torch.tensor(0.55))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.low.copy_(torch.minimum(self.low, x.detach().min()))
        self.high.copy_(torch.maximum(self.high, x.detach().max()))
        width = (self.high - self.low) / 255
        levels = self.low + width * ((x - self.low) / width).round()
        logits: Tensor = self.net(x + (levels - x).detach())
        return logits


_MOVES = dict.fromkeys(TRAINED, "Rounding makes up|same images are passed again")
STATE = {
    "remembers in a buffer": Odd(lambda: Remembers("buffer"), centred),
    "remembers in an attribute": Odd(lambda: Remembers("attribute"), centred),
    "remembers in a list": Odd(lambda: Remembers("list"), centred, _MOVES, rtol=0.02, may_answer=True),
    "remembers in a tuple": Odd(lambda: Remembers("tuple"), centred, _MOVES, rtol=0.02, may_answer=True),
    "counts": Odd(Counts, linear, exact=True),
    "adapts": Odd(
        Adapts,
        None,
        {
            "": "changes its own weights|asked again about the same images|depend on the other images",
            **dict.fromkeys(TRAINED, "changes its own weights in every forward"),
        },
    ),
    "renormalises its weights": Odd(Renormalises, renormalised),
    "spectral and weight norm": Odd(seeded(parametrised), seeded(unparametrised)),
    "instance norm with running statistics": Odd(
        seeded(instance_norm), seeded(instance_norm_by_hand), not_compared=("fit",)
    ),
    "observes": Odd(Observer, None, {"": MIXES, "regularized_loss": PRECISION, "fit": PRECISION}),
}
