"""Five kinds of small network on grey images of 28x28 pixels, trained in seconds: 0.2 to 0.5 million multiply-adds.

Small enough for AutoAttack on hundreds of images. They differ in what an attack meets: curvature, kinks, batch
statistics, attention, and the objective that they were trained by.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.data import Images
from gradreg.training import fit

_CLASSES = 10
_BATCH = 128
_RATE = 3e-3


@dataclass(frozen=True)
class Kind:
    """A network before training, and the objective that trains it."""

    build: Callable[[], nn.Module]
    objective: str | Mapping[str, Any] = "undefended"


class Transformer(nn.Module):
    """Sixteen patches of 7x7 pixels, two layers of attention, the mean over patches."""

    def __init__(self, width: int = 32, depth: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 7, stride=7)
        self.places = nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
                for _ in range(depth)
            )
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        logits: Tensor = self.head(self.norm(self.layers(tokens).mean(1)))
        return logits


def _convolutions(act: type[nn.Module], normalised: bool) -> nn.Module:
    """Three convolutions and a linear layer, with batch normalisation or without."""
    layers: list[nn.Module] = []
    for inputs, outputs, kernel, stride in ((1, 8, 4, 2), (8, 16, 4, 2), (16, 32, 3, 1)):
        layers.append(nn.Conv2d(inputs, outputs, kernel, stride, padding=1))
        layers += [nn.BatchNorm2d(outputs)] if normalised else []
        layers.append(act())
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 7 * 7, _CLASSES))


def _smooth() -> nn.Module:
    return _convolutions(nn.GELU, normalised=False)


KINDS: dict[str, Kind] = {
    "undefended": Kind(_smooth),
    "penalised": Kind(_smooth, {"name": "gradient", "threat": "l2", "eps": 1.0, "h": 0.1}),
    "adversarial": Kind(_smooth, {"name": "adversarial", "threat": "linf", "eps": 0.1, "steps": 5}),
    "rectifiers": Kind(lambda: _convolutions(nn.ReLU, normalised=True)),
    "transformer": Kind(Transformer),
}


def fresh(kind: str, seed: int) -> nn.Module:
    """The untrained network of that kind and seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return KINDS[kind].build()


def trained(kind: str, images: Images, seed: int, steps: int) -> nn.Module:
    """A network of that kind after at least so many steps, in eval mode."""
    model = fresh(kind, seed)
    fit(
        model,
        images,
        KINDS[kind].objective,
        epochs=-(-steps * _BATCH // len(images)),
        batch_size=_BATCH,
        seed=seed,
        held_out=min(200, len(images) // 10),
        optimizer={"name": "adamw", "lr": _RATE},
    )
    return model.eval()
