"""Models by name: a run directory, a shipped network, a weights file, or a model of timm, torchvision or user code."""

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gradreg.checks.calls import validated
from gradreg.checks.fields import conform
from gradreg.checks.scalars import Side, check_path, shown
from gradreg.config import toml
from gradreg.data import DataSet, ImageFolder, Images
from gradreg.data import load as load_data
from gradreg.errors import ConfigError, ModelError, RunError
from gradreg.models.hugging_face import Logits
from gradreg.models.normalize import Statistics
from gradreg.models.preprocessing import Resize
from gradreg.models.registry import LIBRARIES, MODELS, complete, from_table
from gradreg.processes import joined
from gradreg.runs import files, networks
from gradreg.runs.directory import CONFIG, RunDirectory
from gradreg.runs.loading import load
from gradreg.runs.published import Published
from gradreg.runs.subject import Subject, check_fits, parameters
from gradreg.runs.trust import Trust, trusted_packages

SUFFIX = files.SAFE
# The options that load the trained weights of a library's model.
_TRAINED: dict[str, dict[str, Any]] = {
    "timm": {"pretrained": True},
    "torchvision": {"weights": "DEFAULT"},
    "hf": {"pretrained": True},
}


@dataclass(frozen=True)
class OpenedModel:
    """A network in eval mode that accepts the images of the data set."""

    subject: Subject
    model: nn.Module
    data: DataSet


@validated
def open_model(
    model: str,
    data: str | None = None,
    *,
    data_dir: str | Path | None = None,
    device: str | torch.device = "cpu",
    architecture: str | None = None,
    options: Mapping[str, Any] | None = None,
    key: str | None = None,
    size: int | None = None,
    mean: Statistics | None = None,
    std: Statistics | None = None,
    trust: Trust = False,
) -> OpenedModel:
    """The network named by `model`, and its data set: that of the run, unless `data` names another.

    Images of a folder get the `size` that is given, else that of the run's last epoch, whichever folder they are in, or
    the one that a model of Hugging Face was saved with. Images of other data keep theirs, in which distances are
    measured, and a first layer of the network resizes them to `size`. `mean` and `std` normalise pixels before the
    network, in the place of a library's own; a run and a shipped network have theirs.

    A weights file (.safetensors, .pt, .pth, .ckpt) needs an `architecture`, by any name that `gradreg.build` knows, its
    `options` and, if it holds several sets of weights, a `key`. A run needs none of that, unless its network was made
    in Python; code that its recipe names must be trusted. A shipped network is a run known by name.
    """
    size = conform("size", size, Side | None)
    trusted_packages(trust)
    if not model:
        raise ConfigError("model must be the name or the path of a model; got ''.")
    check_path("model", model)
    path, own = networks.resolve(model), dict(options or {})
    options = own | _statistics(mean, std)
    run = _run_of(path)
    if architecture is None and (path.is_dir() or (run is not None and path.suffix == SUFFIX)):
        if mean is not None:
            raise ConfigError(f"{model} normalises its images itself: leave mean and std (--mean, --std) out.")
        if run is not None:
            _check_unused(model, "its recipe says what network it is", {"options (--set)": own, "key (--key)": key})
        opened = _from_run(model, path, run, data, data_dir, trust)
    elif path.is_dir() or files.is_weights(path):
        opened = _from_weights(model, path, run, architecture, options, key, data, data_dir)
    else:
        _check_unused(
            model, "it is no weights file", {"architecture (--architecture)": architecture, "key (--key)": key}
        )
        opened = _by_name(model, options, data, data_dir)
    if size is None and isinstance(opened.data.test, ImageFolder):
        size = _own_size(opened.model)
    if size is not None:
        opened = _sized(opened, size)
    opened.model.to(device).eval()
    example = opened.data.test.floats([0]).to(device)
    remedy = " If it takes images of another size, pass that as size (--size)." if size is None else ""
    check_fits(opened.model, example, opened.data.name, len(opened.data.classes), remedy)
    return opened


@contextmanager
def open_model_on(
    device: str, model: str, data: str | None = None, options: Sequence[str] = (), **named: Any
) -> Iterator[tuple[OpenedModel, torch.device]]:
    """`open_model` with command-line arguments: `device` may be "auto", and `options` are like activation=gelu."""
    with joined(device) as processes:
        table, place = toml.override({}, options), processes.device
        yield open_model(model, data, device=place, options=table, **named), place


def _from_run(
    model: str, path: Path, run: RunDirectory | None, data: str | None, data_dir: Any, trust: Trust
) -> OpenedModel:
    if run is None:
        raise ModelError(f"{model} must be a run directory of `gradreg train`; got a folder without {CONFIG}.")
    which = "best" if path.is_dir() else path.stem
    if which not in ("best", "last"):
        raise ModelError(f"{model} must be best{SUFFIX} or last{SUFFIX} of the run; got a training checkpoint.")
    network = load(run.folder, which, trust=trust)  # type: ignore[arg-type]
    recipe, config = run.config(), run.settings()
    last = config.during(config.epochs - 1)
    found = load_data(data or config.data, data_dir)
    if last.size is not None:
        found = _decoded_at(found, last.size)
    name = run.folder.resolve().name + ("" if which == "best" else f" ({which})")
    subject = Subject(name, model, str(recipe["model"]["name"]), parameters(network), recipe=recipe)
    return OpenedModel(with_training(subject, run, recipe), network, found)


def with_training(subject: Subject, run: RunDirectory, recipe: Mapping[str, Any]) -> Subject:
    """The subject with the objective, recipe and cost of its training."""
    objective = recipe.get("objective", "undefended")
    name = objective.get("name") if isinstance(objective, Mapping) else objective
    if not isinstance(name, str):
        raise RunError(f"{run.folder / CONFIG} is damaged: objective must have a name; got {shown(objective)}.")
    metrics = run.metrics()
    last = metrics[-1] if metrics else {}
    hours = last.get("hours")
    return replace(
        subject,
        objective=name,
        recipe=recipe,
        epochs=last.get("epoch"),
        hours=None if hours is None else float(hours),
        machine=last.get("machine"),
    )


def _from_weights(
    model: str,
    path: Path,
    run: RunDirectory | None,
    architecture: str | None,
    options: dict[str, Any],
    key: str | None,
    data: str | None,
    data_dir: Any,
) -> OpenedModel:
    published = Published.at(path)
    weights = path if not path.is_dir() else path / f"best{SUFFIX}" if published is None else published.weights
    if not weights.is_file():
        raise ModelError(f"{weights} does not exist: pass the path of a weights file or of a run directory.")
    if architecture is None:
        raise ConfigError(
            f"{model} holds weights without an architecture, so pass --architecture (for example compact)."
        )
    found = load_data(_named(data, model), data_dir)
    network = _build(architecture, options, found)
    remedy = f"check --architecture {architecture} and the options of the network"
    files.load_into(network, files.read(weights, key), weights, remedy)
    if published is not None and "mean" not in options:
        network = published.restored(network)
    name = path.resolve().name if path.is_dir() else path.stem
    subject = Subject(name, model, architecture, parameters(network))
    return OpenedModel(with_training(subject, run, run.config()) if run else subject, network, found)


def _by_name(model: str, options: dict[str, Any], data: str | None, data_dir: Any) -> OpenedModel:
    library, colon, _ = model.partition(":")
    if model in MODELS:
        raise ModelError(
            f"{model} is an architecture without weights: pass a run directory, or a weights file and "
            f"--architecture {model}."
        )
    if not colon:
        raise ModelError(
            f"{_unknown(model)}: pass a run directory, a name that `gradreg networks` lists, a weights file "
            f"({', '.join(files.SUFFIXES[:4])}) with --architecture, timm:NAME, torchvision:NAME, "
            "hf:NAME_OR_FOLDER or package.module:function."
        )
    found = load_data(_named(data, model), data_dir)
    network = _build(model, {**_TRAINED.get(library, {}), **options}, found)
    if library in LIBRARIES:
        _check_head(model, network, len(found.classes))
    return OpenedModel(Subject(model, model, model, parameters(network)), network, found)


def _check_unused(model: str, why: str, given: Mapping[str, object]) -> None:
    """Refuse what would change nothing: who passes it would take the numbers for those of another network."""
    for name, value in given.items():
        if value:
            raise ConfigError(f"{name} must not be given with {model}, since {why}; got {shown(value)}.")


def _unknown(model: str) -> str:
    if not os.path.exists(model):
        return f"There is no model {model}"
    run = _run_of(Path(model))
    return f"{model} is not a model" + (f" (it is a file of the run {run.folder})" if run else "")


def _check_head(model: str, network: nn.Module, classes: int) -> None:
    """A library replaces the trained last layer by a random one if the number of classes differs."""
    inner = getattr(network, "model", None)
    named = getattr(inner, "pretrained_cfg", {}).get("num_classes", classes)
    trained = inner.trained_classes if isinstance(inner, Logits) else named
    if trained not in (None, classes):
        raise ModelError(f"{model} must be evaluated on data with {trained} classes; got data with {classes}.")


def _build(name: str, options: dict[str, Any], data: DataSet) -> nn.Module:
    channels = data.train.pixels.shape[1] if isinstance(data.train, Images) else 3
    table = complete({"name": name, **options}, len(data.classes), channels)
    with torch.random.fork_rng():
        return from_table(table)


def _run_of(path: Path) -> RunDirectory | None:
    folder = path if path.is_dir() else path.parent
    return RunDirectory(folder) if (folder / CONFIG).is_file() else None


def _named(data: str | None, model: str) -> str:
    if data is None:
        raise ConfigError(f"{model} does not name its data set, so pass --data (for example --data cifar10).")
    return data


def _statistics(mean: Statistics | None, std: Statistics | None) -> dict[str, Statistics]:
    if mean is None and std is None:
        return {}
    if mean is None or std is None:
        raise ConfigError("Pass both mean and std (--mean, --std) for normalisation, or neither.")
    return {"mean": mean, "std": std}


def _own_size(network: nn.Module) -> int | None:
    """The side of the squares that a network resizes its images to, if it does."""
    resize = getattr(network, "resize", None)
    return resize.size[0] if isinstance(resize, Resize) and resize.size[0] == resize.size[1] else None


def _sized(opened: OpenedModel, size: int) -> OpenedModel:
    """With images of that side before the network: decoded so from a folder, else resized by a first layer.

    Images that have a size of their own keep it, so that distances and the radii of the data set mean what they mean.
    """
    name, test = opened.data.name, opened.data.test
    if isinstance(test, ImageFolder):
        return replace(opened, data=_decoded_at(opened.data, size))
    if isinstance(own := getattr(opened.model, "resize", None), Resize):
        sides = " × ".join(map(str, own.size))
        raise ConfigError(f"{opened.subject.name} resizes images to {sides} itself: leave size (--size) out.")
    height, width = test.pixels.shape[2:]
    if height != width:
        raise ConfigError(
            f"size must not be set for {name}, since it is the side of a square and its images are {height} × {width}; "
            f"got {size}."
        )
    layers = {"resize": Resize(size, size), "network": opened.model}
    return replace(opened, model=nn.Sequential(OrderedDict(layers)))


def _decoded_at(data: DataSet, size: int) -> DataSet:
    """Images of a folder as squares of that side; any other data as they are."""
    train, test = data.train, data.test
    if not isinstance(train, ImageFolder) or not isinstance(test, ImageFolder):
        return data
    return replace(data, train=replace(train, size=size), test=replace(test, size=size))
