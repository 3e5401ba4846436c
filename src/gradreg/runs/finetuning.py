"""A trained network with a fresh last layer, for other classes."""

import torch
from torch import nn

from gradreg.errors import ModelError
from gradreg.runs.loading import load

NAME = f"{__name__}:from_network"
"""By which recipes name it."""


def from_network(classes: int, network: str = "cifar10-l2") -> nn.Module:
    """The network of a run, or one that comes with gradreg, in train mode, with a last layer for that many classes."""
    model = load(network)
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    if not layers:
        raise ModelError(f"{network} has no linear layer at its end that a fresh one could replace.")
    name, last = layers[-1]
    fresh = nn.Linear(last.in_features, classes, bias=last.bias is not None)
    model.set_submodule(name, fresh.to(last.weight.device, torch.get_default_dtype()))
    return model.train()
