"""Options of a certification: an object or keywords, checked before any noise is drawn."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

import gradreg
from gradreg.errors import ConfigError
from gradreg.smoothing import CertifyOptions


def test_options_and_keywords_give_the_same_certificates(linear: Any, images: Tensor) -> None:
    x, model = images.float(), linear.float()
    given = CertifyOptions(sigma=0.5, n=200, radii=[0.0, 0.25], seed=2)
    whole = gradreg.certify(model, x, given)
    parts = gradreg.certify(model, x, sigma=0.5, n=200, radii=[0.0, 0.25], seed=2, batch_size=7)
    assert torch.equal(whole.radius, parts.radius)
    assert whole.settings == parts.settings == given.settings()


def test_the_settings_in_a_file_are_those_of_the_options() -> None:
    settings = CertifyOptions(sigma=0.25, method="cohen", randomized=True, topk=2).settings(given_labels=True)
    assert (settings.n0, settings.n, settings.topk, settings.given_labels, settings.randomized) == (
        100,
        100_000,
        2,
        True,
        True,
    )
    assert CertifyOptions(sigma=0.25).settings().n0 == 32


def test_the_signature_shows_every_option() -> None:
    shown = inspect.signature(gradreg.certify).parameters
    assert {"sigma", "alpha", "n", "n0", "radii", "method", "topk", "labels", "state", "shard"} <= set(shown)
    assert shown["sigma"].default is inspect.Parameter.empty


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sigma": 0}, r"sigma must be positive .*; got 0"),
        ({"sigma": 0.25, "n": 10**12}, "n must be from 1 to 10000000"),
        ({"sigma": 0.25, "n": 5}, "n0 ≥ 1 samples must pick the class"),
        ({"sigma": 0.25, "n": 40, "radii": [1.0]}, "40 samples cannot certify any of the radii"),
        ({"sigma": 0.25, "method": "cohn"}, "method must be one of"),
        ({"sigma": 0.25, "radii": [0.5, 0.25]}, "radii must be"),
        ({"sigma": 0.25, "randomized": True}, "randomized=True needs method"),
    ],
)
def test_what_means_nothing_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        CertifyOptions(**wrong)


def test_sigma_must_be_given(linear: Any, images: Tensor) -> None:
    with pytest.raises(ConfigError, match="sigma must be given"):
        gradreg.certify(linear, images)
