"""SGD, AdamW and Muon from torch, with weight decay on chosen parameters."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Below1, NotNegative, require
from gradreg.errors import ConfigError

Decay = Literal["all", "no-bias", "matrices"]
"""Which parameters decay: all; all but biases; those with two or more axes."""


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum."""

    lr: NotNegative = 0.1
    momentum: Below1 = 0.9
    nesterov: bool = False
    weight_decay: NotNegative = 5e-4
    decay: Decay = "all"

    def __post_init__(self) -> None:
        check_fields(self)
        require(self.momentum > 0 or not self.nesterov, "nesterov = true needs momentum above 0; got 0.")

    def make(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """For all parameters of the model."""
        groups = _groups(model.named_parameters(), self.weight_decay, self.decay)
        return [torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov)]


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay."""

    lr: NotNegative = 1e-3
    betas: tuple[Below1, Below1] = (0.9, 0.999)
    weight_decay: NotNegative = 0.01
    decay: Decay = "matrices"

    def __post_init__(self) -> None:
        check_fields(self)

    def make(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """For all parameters of the model."""
        groups = _groups(model.named_parameters(), self.weight_decay, self.decay)
        return [torch.optim.AdamW(groups, lr=self.lr, betas=self.betas)]


@dataclass(frozen=True)
class Muon:
    """Orthogonalised momentum for weights with two or more axes, AdamW for the others.

    The filters of a convolution are one matrix with a row per output channel. As usual, AdamW also updates the last
    linear layer.
    """

    lr: NotNegative = 0.02
    momentum: Below1 = 0.95
    weight_decay: NotNegative = 0.01
    decay: Decay = "matrices"
    other_lr: NotNegative = 1e-3

    def __post_init__(self) -> None:
        check_fields(self)

    def make(self, model: nn.Module) -> list[torch.optim.Optimizer]:
        """One optimizer for the matrices, one for the rest."""
        if not hasattr(torch.optim, "Muon"):
            raise ConfigError(f"Muon needs torch 2.9 or newer; got torch {torch.__version__}. Use sgd or adamw.")
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
    """A view with one row per output channel, for any memory format: orthogonalisation ignores the order of columns."""
    if weight.ndim == 4 and not weight.is_contiguous():
        weight = weight.permute(0, 2, 3, 1)
    return weight.reshape(len(weight), -1)
