"""Models from elsewhere by name: timm's, torchvision's, and a function of the user's own.

The two libraries are imported when one of their models is asked for. Their models expect normalised images, so they
come wrapped: the normalisation is the first layer and the model takes [0, 1] pixels like every other here. A user's own
function is taken at its word: it normalises inside if it wants to.
"""

import importlib
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import nn

from gradreg.errors import ModelError, did_you_mean
from gradreg.models.activations import activation as activation_named
from gradreg.models.normalize import Normalize

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def timm_model(
    name: str, *, classes: int, channels: int = 3, activation: str | None = None, **options: Any
) -> nn.Module:
    """`timm.create_model(name, **options)` behind the mean and std of its `pretrained_cfg`."""
    timm = _library("timm")
    with _as_one_sentence("timm", name, timm.list_models):
        model = timm.create_model(name, num_classes=classes, in_chans=channels, **options)
    cfg = getattr(model, "pretrained_cfg", {})
    mean, std = cfg.get("mean", IMAGENET_MEAN), cfg.get("std", IMAGENET_STD)
    if channels != len(mean):
        mean, std = sum(mean) / len(mean), sum(std) / len(std)
    return _wrap(name, model, Normalize(mean, std), activation)


def torchvision_model(name: str, *, classes: int, activation: str | None = None, **options: Any) -> nn.Module:
    """`torchvision.models.get_model(name, **options)` behind ImageNet's mean and std."""
    models = _library("torchvision").models
    with _as_one_sentence("torchvision", name, models.list_models):
        model = models.get_model(name, num_classes=classes, **options)
    return _wrap(name, model, Normalize(IMAGENET_MEAN, IMAGENET_STD), activation)


@contextmanager
def user_function(reference: str) -> Iterator[Callable[..., object]]:
    """The callable that `package.module:function` names.

    Python looks in the current directory first, as it does for `python -m`, both to find the module and, within the
    `with` block, for whatever the function itself imports.
    """
    module_name, _, attribute = reference.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise ModelError(f"Model {reference!r} is not of the form 'package.module:function'.")
    here = os.getcwd()
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield _callable(_user_module(module_name), module_name, attribute)
    finally:
        sys.path.remove(here)


def _user_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            where = f"in {os.getcwd()} nor among the installed packages"
            raise ModelError(f"Module {name!r} was found neither {where}.") from None
        raise ModelError(f"Module {name!r} was found, but it needs {error.name!r}, which is not installed.") from error


def _callable(module: ModuleType, module_name: str, attribute: str) -> Callable[..., object]:
    if not hasattr(module, attribute):
        public = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise ModelError(f"Module {module_name!r} has no {attribute!r}{did_you_mean(attribute, public)}.")
    function = getattr(module, attribute)
    if not callable(function):
        kind = type(function).__name__
        raise ModelError(
            f"'{module_name}:{attribute}' is of type {kind}, but it must be a function that makes a model."
        )
    made: Callable[..., object] = function
    return made


def _library(name: str) -> ModuleType:
    """The library, or one sentence on how to get it. A torchvision built for another torch fails with RuntimeError."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise ModelError(f"The package {name} is not installed: run pip install 'gradreg[{name}]'.") from None
        packages = "torchvision" if name == "torchvision" else f"{name} and torchvision"
        raise ModelError(
            f"The package {name} is installed but cannot be imported ({type(error).__name__}: {error}); install "
            f"builds of {packages} that match torch {torch.__version__}, see https://pytorch.org/get-started."
        ) from error


@contextmanager
def _as_one_sentence(library: str, name: str, list_models: Callable[[], list[str]]) -> Iterator[None]:
    """Turns whatever the library objects to (a name, an option, a class count) into an error of ours."""
    try:
        yield
    except Exception as error:
        known = list_models()
        hint = "" if name in known else did_you_mean(name, known)
        raise ModelError(f"Model {name!r} could not be built by {library}{hint}: {_ended(error)}") from error


def _ended(error: Exception) -> str:
    """A library's own words, closed by a full stop if they are not."""
    words = str(error) or type(error).__name__
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _wrap(name: str, model: nn.Module, normalize: Normalize, activation: str | None) -> nn.Module:
    """The model behind its normalisation, with every ReLU layer replaced when an activation is named."""
    if activation is not None:
        fresh = activation_named(activation)
        relus = [path for path, module in model.named_modules(remove_duplicate=False) if isinstance(module, nn.ReLU)]
        if not relus:
            raise ModelError(f"{name!r} has no ReLU layer for activation={activation!r} to replace: leave it out.")
        for path in relus:
            model.set_submodule(path, fresh())
    return nn.Sequential(OrderedDict[str, nn.Module](normalize=normalize, model=model))
