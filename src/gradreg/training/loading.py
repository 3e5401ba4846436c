"""A trained network from its run directory."""

import os
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from gradreg.models import build
from gradreg.training.directory import RunDirectory
from gradreg.training.errors import RunError


def load(run: str | os.PathLike[str], which: Literal["best", "last"] = "best") -> nn.Module:
    """The network of a run, in eval mode, with the weights of its best or last epoch."""
    directory = RunDirectory(Path(run))
    model = directory.config().get("model")
    if model is None:
        raise RunError(
            f"The network of {run} was made in Python, so its recipe does not say how to build it: build it yourself "
            f"and load {which}.safetensors with safetensors.torch.load_model."
        )
    weights = directory.weights(which)
    with torch.random.fork_rng():
        network = build(model["name"], **{key: value for key, value in model.items() if key != "name"})
    network.load_state_dict(weights.tensors)
    return network.eval()
