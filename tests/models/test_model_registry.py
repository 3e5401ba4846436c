"""Building by name: each mistake gets its sentence."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from gradreg.errors import ModelError
from gradreg.models import build, names
from gradreg.models.registry import MODELS, Entry, complete


def message_of(name: str, **options: object) -> str:
    with pytest.raises(ModelError) as caught:
        build(name, **{"classes": 10, **options})  # type: ignore[arg-type]
    return str(caught.value)


def test_names_come_with_one_line_each() -> None:
    listing = names()
    assert set(listing) >= {"small", "compact", "resnext34_2x32", "resnet50"}
    assert all(description and "\n" not in description for description in listing.values())


def test_options_reach_the_model() -> None:
    model = build("small", classes=3, channels=2, activation="silu").eval()
    assert model(torch.rand(1, 2, 28, 28)).shape == (1, 3)


def test_unknown_model_names_the_nearest_and_lists_all() -> None:
    assert message_of("resnext34") == (
        f"There is no model 'resnext34' (did you mean 'resnext34_2x32'?): choose one of {', '.join(MODELS)}, "
        "timm:NAME, torchvision:NAME, hf:NAME, package.module:function."
    )


def test_a_name_like_no_other_gets_no_guess() -> None:
    assert message_of("qqqq").startswith("There is no model 'qqqq': choose one of small, ")


def test_unknown_option_names_the_nearest() -> None:
    assert message_of("compact", activaton="gelu") == (
        "Model 'compact' takes no option 'activaton' (did you mean 'activation'?); "
        "it takes: classes, channels, activation, width, mean, std."
    )


@pytest.mark.parametrize("classes", [1, 0, -5, 10.0, "10", True, None])
def test_senseless_classes(classes: object) -> None:
    expected = "from 2 to 1000000" if type(classes) is int else "a whole number"
    assert message_of("small", classes=classes) == f"classes must be {expected}; got {classes!r}."


@pytest.mark.parametrize("channels", [0, -1, 2.5])
def test_senseless_channels(channels: object) -> None:
    expected = "from 1 to 10000" if type(channels) is int else "a whole number"
    assert message_of("small", channels=channels) == f"channels must be {expected}; got {channels!r}."


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_library_without_a_model(library: str) -> None:
    expected = f"Add the name of a model of {library}, for example '{library}:resnet50'; got '{library}:'."
    assert message_of(f"{library}:") == expected


def blind(*, classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))


def seeing(*, classes: int, channels: int = 3) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.LazyLinear(classes))


@pytest.mark.parametrize(("function", "takes"), [(blind, set()), (seeing, {"channels"})])
def test_a_new_model_is_one_line_whether_it_takes_channels_or_not(
    function: Callable[..., nn.Module], takes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`complete` reads the signature, so a model that works for any number of channels needs no such argument."""
    monkeypatch.setitem(MODELS, "fresh", Entry(function, "a model of today"))
    options = complete({"name": "fresh"}, classes=4, channels=1)
    assert set(options) == {"name", "classes"} | takes
    assert build(**options)(torch.rand(2, 1, 8, 8)).shape == (2, 4)
    assert names()["fresh"] == "a model of today"
