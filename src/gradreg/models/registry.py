"""Every model by its name.

- a name of the table below, such as `compact`;
- `timm:NAME`, `torchvision:NAME` or `hf:NAME_OR_FOLDER`, when that library is installed;
- `package.module:function`, the user's own, found in the current directory or among the installed packages and called
  as `function(classes=…, **options)`.

All of them take [0, 1] pixels and give logits.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from torch import nn

from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_integer, shown
from gradreg.defaults import callers_default
from gradreg.errors import ModelError, did_you_mean
from gradreg.models.checks import unknown
from gradreg.models.compact import compact
from gradreg.models.external import normalised, timm_model, torchvision_model, user_function
from gradreg.models.hugging_face import hf_model
from gradreg.models.residual import residual
from gradreg.models.resnet import resnet50
from gradreg.models.resnext import resnext34_2x32
from gradreg.models.small import small


class Entry(NamedTuple):
    """A model that can be built by name."""

    function: Callable[..., nn.Module]
    description: str


MODELS = {
    "small": Entry(small, "28x28 grey images; learns in seconds (3.2 MMAC, 57 k parameters)"),
    "compact": Entry(compact, "robust CIFAR training on a CPU (19 MMAC, 498 k parameters)"),
    "residual": Entry(residual, "robust CIFAR networks of more accuracy (102 MMAC, 1.3 M parameters)"),
    "resnext34_2x32": Entry(resnext34_2x32, "the paper's CIFAR network (571 MMAC, 3.9 M parameters)"),
    "resnet50": Entry(resnet50, "the paper's ImageNet network, v1.5 (4.1 GMAC at 224x224, 25.6 M parameters)"),
}

# Beyond these, torch fails to allocate the first or the last layer.
_MOST_CLASSES, _MOST_CHANNELS = 1_000_000, 10_000

LIBRARIES: dict[str, Callable[..., nn.Module]] = {"timm": timm_model, "torchvision": torchvision_model, "hf": hf_model}
_EXAMPLES = {"hf": "hf:google/vit-base-patch16-224"}


def names() -> dict[str, str]:
    """What each built-in model is for, by name."""
    return {name: entry.description for name, entry in MODELS.items()}


@validated
def build(name: str, *, classes: int, **options: Any) -> nn.Module:
    """A fresh model of that name, in train mode; options are its own: `channels`, `activation`, `mean`, `std`, …

    Weights are drawn from torch's global generator.
    """
    if not isinstance(name, str):
        raise ModelError(f"name must be that of a model, as 'compact'; got {shown(name)}.")
    classes = check_integer("classes", classes, least=2, most=_MOST_CLASSES, error=ModelError)
    if "channels" in options:
        channels = check_integer("channels", options["channels"], least=1, most=_MOST_CHANNELS, error=ModelError)
        options |= {"channels": channels}
    with _function(name) as function:
        return _call(name, function, {"classes": classes, **options})


def from_table(model: Mapping[str, Any]) -> nn.Module:
    """A fresh model by its whole table, as runs keep it: `name`, `classes` and options."""
    for needed in ("name", "classes"):
        if needed not in model:
            raise ModelError(f"The setting 'model.{needed}' is missing.")
    return build(**model)


def complete(model: Mapping[str, Any], classes: int, channels: int) -> dict[str, Any]:
    """A model's table, as in a recipe, plus `classes`, and `channels` if its function takes that argument."""
    given = {**model}
    given.setdefault("classes", classes)
    with _function(str(given["name"])) as function:
        if "channels" in inspect.signature(function).parameters:
            given.setdefault("channels", channels)
    return given


@contextmanager
def _function(name: str) -> Iterator[Callable[..., object]]:
    """The function that makes the model of that name."""
    prefix, colon, rest = name.partition(":")
    if prefix in LIBRARIES and colon:
        if not rest:
            example = _EXAMPLES.get(prefix, f"{prefix}:resnet50")
            raise ModelError(f"Add the name of a model of {prefix}, for example '{example}'; got {name!r}.")
        yield partial(LIBRARIES[prefix], rest)
    elif colon:
        with user_function(name) as function:
            yield function
    elif name in MODELS:
        yield MODELS[name].function
    else:
        raise unknown(
            "model", name, [*MODELS, *(f"{library}:NAME" for library in LIBRARIES), "package.module:function"]
        )


def _call(name: str, function: Callable[..., object], options: dict[str, Any]) -> nn.Module:
    around = _normalisation(function, options)
    options = {option: value for option, value in options.items() if option not in around}
    _check_options(name, function, options)
    with callers_default():
        model = function(**options)
    if not isinstance(model, nn.Module):
        raise ModelError(f"Model {name!r} must return a torch.nn.Module; got {type(model).__name__}.")
    return normalised(model, **around) if around else model


def _normalisation(function: Callable[..., object], options: Mapping[str, Any]) -> dict[str, Any]:
    """The `mean` and `std` of a function that does not take them: the model is then put behind a layer."""
    takes = inspect.signature(function).parameters
    around = {name: options[name] for name in ("mean", "std") if name in options and name not in takes}
    if len(around) == 1:
        raise ModelError(f"Pass both mean and std, or neither for raw [0, 1] pixels; got {next(iter(around))} alone.")
    return around


def _check_options(name: str, function: Callable[..., object], options: dict[str, Any]) -> None:
    """Check before the call that the function takes every option and gets every one that it needs."""
    parameters = inspect.signature(function).parameters.values()
    known = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for option in options:
        if option not in known and not takes_any:
            takes = ", ".join(known) or "nothing"
            raise ModelError(
                f"Model {name!r} takes no option {option!r}{did_you_mean(option, known)}; it takes: {takes}."
            )
    for needed, parameter in known.items():
        if parameter.default is parameter.empty and needed not in options:
            raise ModelError(f"Model {name!r} needs the option {needed!r}: pass {needed}=….")
