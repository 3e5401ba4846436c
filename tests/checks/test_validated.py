"""A function that is checked by its hints: what it takes, what it refuses, and what stays as it was."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import torch

from gradreg.checks.calls import validated
from gradreg.checks.objects import Must, Words
from gradreg.checks.scalars import Count
from gradreg.errors import ConfigError, ModelError


@validated
def example(
    place: str | os.PathLike[str],
    /,
    mode: Literal["a", "b"] = "a",
    *names: str,
    switch: bool = False,
    count: Count = 1,
    told: "Callable[[int], None] | None" = None,
    model: Annotated[Callable[..., Any], Must("a network", ModelError)] = len,
    pairs: tuple[int, int] = (0, 1),
    device: torch.device | str = "cpu",
    losses: Annotated[Any, Words("ce|t[0-9]", "'ce' or 't1'")] = ("ce",),
    bar: Callable[[int], None] | bool | None = None,
    later: "OnlyForTypeCheckers | None" = None,  # type: ignore[name-defined] # noqa: F821
    **more: Any,
) -> dict[str, Any]:
    """What it was given."""
    return locals()


def test_what_is_right_comes_through() -> None:
    found = example("here", "b", "x", "y", switch=True, count=3, losses=["t1"], other=object())
    assert (found["place"], found["mode"], found["names"]) == ("here", "b", ("x", "y"))
    assert (found["switch"], found["count"], found["losses"]) == (True, 3, ("t1",))
    assert list(found["more"]) == ["other"]
    assert example(Path("here"))["place"] == Path("here")
    assert example("here", pairs=[2, 3], later=5)["pairs"] == (2, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mode": "c"}, "mode must be one of 'a', 'b'; got 'c'"),
        ({"switch": 1}, "switch must be True or False; got 1"),
        ({"count": 0}, "count must be at least 1; got 0"),
        ({"count": 10**10}, "count must be at most 1,000,000,000: more would neither end nor fit in; got 10000000000"),
        ({"told": 3}, "told must be a function; got 3"),
        ({"pairs": (1, 2, 3)}, r"pairs must be a list of 2; got \(1, 2, 3\)"),
        ({"pairs": (1, "2")}, "pairs must be a whole number; got '2'"),
        ({"device": "gpu"}, "device must be a device of this machine, such as 'cpu'; got 'gpu'"),
        ({"device": 1.5}, "device must be a device of this machine, such as 'cpu'; got 1.5"),
        ({"losses": ["ce", "x"]}, r"losses must be 'ce' or 't1'; got \['ce', 'x'\]"),
        ({"losses": "ce"}, "losses must be a list of names; got 'ce'"),
        ({"bar": 1}, "bar must be True, False or a function; got 1"),
    ],
)
def test_what_is_wrong_is_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        example("here", **given)


@pytest.mark.parametrize("place", [0, True, 1.5, None, b"here", "", "a\0b"])
def test_a_number_is_no_path(place: Any) -> None:
    """`open(1)` would write to standard output, and close it."""
    with pytest.raises(ConfigError, match="place must be a path; got"):
        example(place)


def test_a_hint_may_name_its_own_error() -> None:
    with pytest.raises(ModelError, match="model must be a network; got 'resnet'"):
        example("here", model="resnet")  # type: ignore[arg-type]


def test_calls_that_do_not_fit_are_python_s_to_refuse() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'place'"):
        example()  # type: ignore[call-arg]


def test_it_looks_like_the_function_that_it_checks() -> None:
    assert example.__doc__ == "What it was given."
    assert list(inspect.signature(example).parameters)[:2] == ["place", "mode"]
