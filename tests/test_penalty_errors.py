"""A wrong call gets one sentence that says what was wrong and what to do."""

from typing import Any

import pytest
import torch
from torch import nn

from gradreg import ConfigError, DataError, ModelError, regularized_loss

WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "either lam=.* or eps="),
    ({"lam": 1.0, "eps": 0.1}, "either lam=.* or eps="),
    ({"lam": -1.0}, "lam must be at least 0; got -1.0"),
    ({"eps": 0.1, "weight": float("nan")}, "weight must be a finite number; got nan"),
    ({"lam": 1.0, "weight": 2.0}, "weight= goes with eps="),
    ({"eps": 0.1, "squared": True}, "unsquared"),
    ({"eps": 0.1, "scale": "paper"}, "in the dual norm: use lam="),
    ({"lam": 1.0, "scale": "true"}, "scale must be one of 'paper', 'dual'; got 'true'"),
    ({"lam": 1.0, "threat": "l3"}, "threat must be one of linf, l2, l1, .*; got 'l3'"),
    ({"lam": 1.0, "h": 0.0}, "h must be positive .*; got 0.0"),
    (
        {"lam": 1.0, "h": 1e4},
        r"h must be at most 200, which moves every pixel by 100; got 10000\. It is .* in l2,",
    ),
    ({"lam": 1.0, "h": 1e30}, "h must be at most 200"),
    ({"lam": 1.0, "h": torch.tensor([0.01, 300.0])}, "h must be at most 200"),
    ({"lam": 1.0, "h": 500.0, "threat": "l1"}, "h must be at most 400, .* in l1,"),
    ({"lam": 1.0, "h": 500.0, "threat": "linf"}, r"h must be at most 200, .* in l2 \(scale='paper'\),"),
    ({"lam": 1.0, "h": 150.0, "threat": "linf", "scale": "dual"}, "h must be at most 100, .* in linf,"),
    ({"eps": 500.0}, r"eps without h=, a step of eps/2, must be at most 400, .*; got 500\."),
    ({"lam": 1.0, "h": torch.ones(3)}, "one number, or one per image for all 2 images"),
    ({"lam": 1.0, "order": 3}, "order must be one of 1, 2; got 3"),
    ({"lam": 1.0, "method": "exact"}, "method must be one of .*; got 'exact'"),
    ({"lam": 1.0, "graphs": 3}, "graphs must be one of 1, 2; got 3"),
    ({"lam": 1.0, "autocast": True}, "autocast must be one of .*; got True"),
    ({"lam": 1.0, "bn": "eval"}, "bn must be .*; got 'eval'"),
    ({"lam": 1.0, "lazy": 0, "step": 0}, "lazy must be at least 1"),
    ({"lam": 1.0, "fraction": 0.0, "step": 0}, "fraction must be above 0 and at most 1; got 0.0"),
    ({"lam": 1.0, "lazy": 4}, "need step="),
    ({"lam": 1.0, "fraction": 0.5}, "need step="),
    ({"lam": 1.0, "criterion": nn.CrossEntropyLoss()}, "reduction='none'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    with pytest.raises(ConfigError, match=message) as caught:
        regularized_loss(model, torch.rand(2, 1, 2, 2), torch.tensor([0, 1]), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.rand(4), torch.tensor([0]), "x must be a float batch"),
        (torch.zeros(2, 4, dtype=torch.uint8), torch.tensor([0, 1]), "x must be a float batch"),
        (torch.rand(2, 4), torch.tensor([0]), "one label per image, 2; got a Tensor of torch.int64 and shape \\(1,\\)"),
        (torch.rand(0, 4), torch.tensor([], dtype=torch.int64), "x must hold one image or more; got an empty batch"),
    ],
)
def test_wrong_batches(x: torch.Tensor, y: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        regularized_loss(nn.Linear(4, 3), x, y, lam=1.0)


def test_frozen_batch_norm_needs_to_see_the_module() -> None:
    with pytest.raises(ConfigError, match=r"pass the nn\.Module itself"):
        regularized_loss(lambda x: x, torch.rand(2, 3), torch.tensor([0, 1]), lam=1.0, bn="frozen")


def test_inference_mode_is_refused() -> None:
    with torch.inference_mode(), pytest.raises(ConfigError, match=r"use torch\.no_grad"):
        regularized_loss(nn.Linear(4, 3), torch.rand(2, 4), torch.tensor([0, 1]), lam=1.0)


def test_a_model_that_hides_its_input_is_refused() -> None:
    layer = nn.Linear(4, 3)
    ways: list[dict[str, Any]] = [{"lam": 1.0}, {"eps": 1.0}, {"lam": 1.0, "method": "double-backprop"}]
    for how in ways:
        for weights in (True, False):
            layer.requires_grad_(weights)
            with pytest.raises(ModelError, match="does not depend on the images"):
                regularized_loss(lambda x: layer(x.detach()), torch.rand(2, 4), torch.tensor([0, 1]), **how)


def test_long_steps_are_fine_where_none_is_taken_or_images_are_large() -> None:
    model, y = nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), torch.tensor([0, 1])
    x = torch.rand(2, 3, 8, 8)
    ways: list[dict[str, Any]] = [
        {"eps": 1e4, "method": "double-backprop"},
        {"eps": 1e4, "h": 0.1},
        {"eps": 12.0, "threat": "l1"},
        {"lam": 1.0, "h": 1000.0},
        {"lam": 1.0, "h": 1000.0, "threat": "linf"},
    ]
    for how in ways:
        regularized_loss(model, x, y, **how)
