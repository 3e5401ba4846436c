"""A trained network from its run directory, or one that comes with the package."""

import os
from typing import Literal

import torch
from torch import nn

from gradreg.errors import RunError
from gradreg.models import build
from gradreg.runs import networks
from gradreg.runs.directory import RunDirectory


def load(run: str | os.PathLike[str], which: Literal["best", "last"] = "best") -> nn.Module:
    """The network of a run, in eval mode, with the weights of its best or last epoch.

    `run` is a run directory or the name of a shipped network; a run directory of that name takes precedence.
    """
    directory = RunDirectory(networks.resolve(run))
    if not (directory.folder / networks.CONFIG).is_file():
        raise RunError(
            f"{run} is neither a run directory (there is no {networks.CONFIG} in it) nor a network that comes with "
            f"gradreg{networks.hint(os.fspath(run))}."
        )
    if which == "last" and directory.folder.parent == networks.home():
        raise RunError(f"{run} is a shipped network, which has the weights of its best epoch only: omit 'last'.")
    config = directory.config()
    model = config.get("model")
    if model is None:
        raise RunError(
            f"The network of {run} was made in Python, so its recipe does not say how to build it: build it yourself "
            f"and load {which}.safetensors with safetensors.torch.load_model."
        )
    weights = directory.weights(which)
    with torch.random.fork_rng():
        network = build(model["name"], **{key: value for key, value in model.items() if key != "name"})
    network.load_state_dict(weights.tensors)
    if config.get("channels_last"):
        # Files hold contiguous weights; in channels_last, as trained, the CIFAR-10 networks are up to twice as fast.
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.eval()
