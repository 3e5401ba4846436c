"""Models from elsewhere by name: timm's, torchvision's, and a function of the user's own.

The two libraries are imported when one of their models is asked for. Their models expect normalised images, so they
come wrapped: the normalisation is the first layer and the model takes [0, 1] pixels like every other here. A user's own
function is used as it is, or behind the mean and std that are given.
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

from gradreg.errors import ModelError, did_you_mean, words_of
from gradreg.models.normalize import Normalize, Statistics, first_layer
from gradreg.models.swaps import swap_activations

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


def timm_model(
    name: str,
    *,
    classes: int,
    channels: int = 3,
    activation: str | None = None,
    mean: Statistics | None = None,
    std: Statistics | None = None,
    **options: Any,
) -> nn.Module:
    """`timm.create_model(name, **options)` behind the mean and std of its `pretrained_cfg`, unless they are given."""
    timm = library("timm")
    with as_one_sentence("timm", name, timm.list_models):
        model = timm.create_model(name, num_classes=classes, in_chans=channels, **options)
    cfg = getattr(model, "pretrained_cfg", {})
    own, spread = cfg.get("mean", _IMAGENET_MEAN), cfg.get("std", _IMAGENET_STD)
    if channels != len(own):
        own, spread = sum(own) / len(own), sum(spread) / len(spread)
    return _wrap(model, _given(mean, std, channels) or Normalize(own, spread), activation)


def torchvision_model(
    name: str,
    *,
    classes: int,
    activation: str | None = None,
    mean: Statistics | None = None,
    std: Statistics | None = None,
    **options: Any,
) -> nn.Module:
    """`torchvision.models.get_model(name, **options)` behind ImageNet's mean and std, unless they are given."""
    models = library("torchvision").models
    with as_one_sentence("torchvision", name, models.list_models):
        model = models.get_model(name, num_classes=classes, **options)
    return _wrap(model, _given(mean, std, 3) or Normalize(_IMAGENET_MEAN, _IMAGENET_STD), activation)


def normalised(model: nn.Module, mean: Statistics, std: Statistics) -> nn.Module:
    """A model of anybody's behind that normalisation, so that it takes [0, 1] pixels."""
    return _wrap(model, Normalize(mean, std), None)


def _given(mean: Statistics | None, std: Statistics | None, channels: int) -> nn.Module | None:
    return None if mean is None and std is None else first_layer(mean, std, channels)


@contextmanager
def user_function(reference: str) -> Iterator[Callable[..., object]]:
    """The callable that `package.module:function` names.

    Python looks in the current directory first, as it does for `python -m`, both to find the module and, within the
    `with` block, for whatever the function itself imports.
    """
    module_name, _, attribute = reference.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), attribute)):
        raise ModelError(f"A model of your own must have the form 'package.module:function'; got {reference!r}.")
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
        raise ModelError(f"Module {name!r} needs {error.name!r}, which is not installed.") from error


def _callable(module: ModuleType, module_name: str, attribute: str) -> Callable[..., object]:
    if not hasattr(module, attribute):
        public = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise ModelError(f"Module {module_name!r} has no {attribute!r}{did_you_mean(attribute, public)}.")
    function = getattr(module, attribute)
    if not callable(function):
        kind = type(function).__name__
        raise ModelError(f"'{module_name}:{attribute}' must be a function that returns a model; got {kind}.")
    made: Callable[..., object] = function
    return made


def library(name: str, extra: str | None = None) -> ModuleType:
    """The library, or an error that says how to get it. A torchvision built for another torch raises RuntimeError."""
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            extra = extra or package
            raise ModelError(f"The package {package} is not installed: run pip install 'gradreg[{extra}]'.") from None
        packages = "torchvision" if package == "torchvision" else f"{package} and torchvision"
        raise ModelError(
            f"The package {package} is installed but cannot be imported ({type(error).__name__}: {words_of(error)}); "
            f"install builds of {packages} that match torch {torch.__version__}, see https://pytorch.org/get-started."
        ) from error


@contextmanager
def as_one_sentence(library: str, name: str, list_models: Callable[[], list[str]] | None = None) -> Iterator[None]:
    """Turn whatever the library rejects (a name, an option, a class count) into a ModelError."""
    try:
        yield
    except Exception as error:
        known = list_models() if list_models else []
        hint = "" if name in known else did_you_mean(name, known)
        raise ModelError(f"Model {name!r} could not be built by {library}{hint}: {_ended(error)}") from error


def _ended(error: Exception) -> str:
    """A library's own message on one line, with a full stop at its end."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _wrap(model: nn.Module, normalize: nn.Module, activation: str | None) -> nn.Module:
    """The model behind its normalisation, with every activation that has a kink replaced when one is named."""
    if activation is not None:
        model = swap_activations(model, activation)
    return nn.Sequential(OrderedDict[str, nn.Module](normalize=normalize, model=model))
