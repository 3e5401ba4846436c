"""A trained network from its run directory, or one that comes with the package."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gradreg.checks.calls import validated
from gradreg.errors import ConfigError, RunError
from gradreg.models import build
from gradreg.models.registry import MODELS, from_table
from gradreg.reading import naming, one_sentence
from gradreg.runs import files, networks
from gradreg.runs.directory import RunDirectory
from gradreg.runs.published import Published
from gradreg.runs.trust import Trust, check_trusted, trusted_packages
from gradreg.runs.weights import check_fit, load_weights


@validated
def load(
    run: str | os.PathLike[str],
    which: Literal["best", "last"] = "best",
    *,
    trust: Trust = False,
    architecture: str | nn.Module | None = None,
    options: Mapping[str, Any] | None = None,
    key: str | None = None,
) -> nn.Module:
    """The network of a run, in eval mode, with the weights of its best or last epoch.

    `run` is a run directory or the name of a shipped network; a run directory of that name takes precedence. If the run
    names code of your own, pass `trust=True`, or the name of its package: loading a run would execute it.

    `run` may also be a weights file (.safetensors, .pt, .pth, .ckpt) for an `architecture`: a network of yours, which
    gets the weights, or a name that `gradreg.build` knows, with its `options` such as {"classes": 10}. `key` says which
    weights, in a file that holds several sets. A folder that `gradreg.publish` wrote needs an `architecture` too, and
    is loaded with its normalisation: the same pixels give the same logits.
    """
    trusted_packages(trust)
    if (published := Published.at(Path(run))) is not None:
        if architecture is None:
            raise ConfigError(
                f"{run} holds the weights of a {published.architecture} that was made in Python, so pass "
                "architecture=, such a network made by its own code, which gets them."
            )
        return published.restored(_from_file(published.weights, architecture, options or {}, key))
    if architecture is not None or (files.is_weights(Path(run)) and not Path(run).is_dir()):
        path = Path(run) / f"{which}.safetensors" if Path(run).is_dir() else Path(run)
        return _from_file(path, architecture, options or {}, key)
    directory = RunDirectory(networks.resolve(run))
    if not (directory.folder / networks.CONFIG).is_file():
        raise RunError(
            f"{run} is neither a run directory (there is no {networks.CONFIG} in it) nor a network that comes with "
            f"gradreg{networks.hint(os.fspath(run))}."
        )
    if which == "last" and directory.folder.parent == networks.home():
        raise RunError(f"{run} is a shipped network, which has the weights of its best epoch only: omit 'last'.")
    path = directory.folder / networks.CONFIG
    config = directory.config()
    model = config.get("model")
    if model is None:
        for name, table in config.items():
            if isinstance(table, dict) and "model" in table:
                raise RunError(f"{path} has its model within [{name}]: tables in brackets go to the end of the file.")
        raise RunError(
            f"The network of {run} was made in Python, so its recipe does not say how to build it: pass architecture=, "
            "such a network made by its own code, which gets the weights."
        )
    if not isinstance(model, dict) or not isinstance(model.get("name"), str):
        raise RunError(f"{path} is damaged: model must be a table with a name; got {str(model)[:60]!r}.")
    check_trusted(model, path, trust)
    weights = directory.weights(which)
    with torch.random.fork_rng():
        network = _built(model, weights.tensors, path)
    load_weights(network, weights.tensors, directory.folder / f"{which}.safetensors", f"see model in {path}")
    if config.get("channels_last"):
        # Files hold contiguous weights; in channels_last, as trained, the CIFAR-10 networks are up to twice as fast.
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # Other libraries' attacks call `view` on the gradient of their images.
        network.register_forward_pre_hook(_contiguous_gradient)
    return network.eval()


def _contiguous_gradient(network: nn.Module, images: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same images as a view of rows, whose gradient is contiguous whatever the order of the network's own."""
    return tuple(x.flatten(1).view(x.shape) if isinstance(x, Tensor) and x.ndim > 1 else x for x in images)


def _from_file(
    path: Path, architecture: str | nn.Module | None, options: Mapping[str, Any], key: str | None
) -> nn.Module:
    if architecture is None:
        raise ConfigError(
            f"{path} holds weights without an architecture, so pass architecture=, a network or a name such as compact."
        )
    if isinstance(architecture, nn.Module):
        network, remedy = architecture, "pass the network that they were saved from as architecture"
    else:
        remedy = f"check architecture {architecture!r} and its options"
        if "classes" not in options:
            raise ConfigError(f"options must hold the classes of {architecture!r}, as {{'classes': 10}}; got none.")
        with torch.random.fork_rng():
            network = build(architecture, **options)
    files.load_into(network, files.read(path, key), path, remedy)
    return network.eval()


def _built(model: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> nn.Module:
    """The network that a recipe describes.

    A built-in one is compared with its weights before memory is taken for it: it can be no larger than they are.
    """
    if model["name"] not in MODELS:
        with naming(path, "its model cannot be built"):
            return from_table(model)
    with one_sentence(path, "restore the recipe that belongs to the weights"):
        with torch.device("meta"):
            check_fit(from_table(model), tensors, "The weights beside it", f"see model in {path}")
        return from_table(model)
