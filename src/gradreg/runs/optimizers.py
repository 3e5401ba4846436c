"""SGD, AdamW and Muon from torch, with weight decay where it is wanted."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gradreg.errors import ConfigError

Decay = Literal["all", "no-bias", "matrices"]
"""Which parameters decay: all of them; those not named a bias; those with two or more axes."""


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum."""

    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 5e-4
    decay: Decay = "all"

    def make(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """For all parameters of the model."""
        groups = _groups(model.named_parameters(), self.weight_decay, self.decay)
        return [torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov)]


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.01
    decay: Decay = "matrices"

    def make(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """For all parameters of the model."""
        groups = _groups(model.named_parameters(), self.weight_decay, self.decay)
        return [torch.optim.AdamW(groups, lr=self.lr, betas=self.betas)]


@dataclass(frozen=True)
class Muon:
    """Momentum whose matrices are orthogonalised, for every weight with two or more axes; AdamW for the others.

    A convolution's filters are taken as one matrix, a row for each output channel. The last linear layer is left to
    AdamW too, as is usual.
    """

    lr: float = 0.02
    momentum: float = 0.95
    weight_decay: float = 0.01
    decay: Decay = "matrices"
    other_lr: float = 1e-3

    def make(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """One optimizer for the matrices, one for the rest."""
        if not hasattr(torch.optim, "Muon"):
            raise ConfigError(f"Muon needs torch 2.9 or newer, and this is {torch.__version__}: use sgd or adamw.")
        named = dict(model.named_parameters())
        last = max((name for name, weight in named.items() if weight.ndim == 2), key=list(named).index, default="")
        matrices = {name: weight for name, weight in named.items() if weight.ndim >= 2 and name != last}
        rest = [(name, weight) for name, weight in named.items() if name not in matrices]
        made: list[torch.optim.Optimizer] = []
        if matrices:
            made.append(_muon(list(matrices.values()), self.lr, self.momentum, self.weight_decay))
        if rest:
            made.append(torch.optim.AdamW(_groups(iter(rest), self.weight_decay, self.decay), lr=self.other_lr))
        return made


Settings = SGD | AdamW | Muon
OPTIMIZERS: dict[str, type] = {"sgd": SGD, "adamw": AdamW, "muon": Muon}


def _groups(named: Iterator[tuple[str, Tensor]], weight_decay: float, decay: Decay) -> list[dict[str, Any]]:
    decays: dict[Decay, Callable[[str, Tensor], bool]] = {
        "all": lambda name, weight: True,
        "no-bias": lambda name, weight: "bias" not in name,
        "matrices": lambda name, weight: weight.ndim >= 2,
    }
    chosen: dict[bool, list[Tensor]] = {True: [], False: []}
    for name, weight in named:
        chosen[decays[decay](name, weight)].append(weight)
    return [
        {"params": weights, "weight_decay": weight_decay if decaying else 0.0}
        for decaying, weights in chosen.items()
        if weights
    ]


def _muon(weights: list[Tensor], lr: float, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
    """torch's Muon, which takes matrices only, on views of the weights as matrices."""

    class Flattened(torch.optim.Muon):
        def step(self, closure: Any = None) -> Any:
            for matrix, weight in zip(self.param_groups[0]["params"], weights, strict=True):
                matrix.grad = None if weight.grad is None else _matrix(weight.grad)
            result = super().step(closure)  # type: ignore[no-untyped-call]
            for weight in weights:
                weight.grad = None
            return result

    views = [nn.Parameter(_matrix(weight.detach())) for weight in weights]
    return Flattened(views, lr=lr, momentum=momentum, weight_decay=weight_decay)


def _matrix(weight: Tensor) -> Tensor:
    """A view with one row an output channel, whatever the memory format: orthogonalisation ignores columns' order."""
    if weight.ndim == 4 and not weight.is_contiguous():
        weight = weight.permute(0, 2, 3, 1)
    return weight.reshape(len(weight), -1)
