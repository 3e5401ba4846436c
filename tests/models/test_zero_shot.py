"""Zero-shot classifiers: logits by the formula, through modules, methods and objects, attacked like any other."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

import gradreg
from gradreg.errors import ModelError
from gradreg.models import ZeroShot


class Clip(nn.Module):
    """An image encoder as CLIP's: reached by a method, beside other things."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(48, 16), nn.GELU(), nn.Linear(16, 6))

    def encode_image(self, x: Tensor) -> Tensor:
        found: Tensor = self.visual(x)
        return found

    def get_image_features(self, pixel_values: Tensor) -> Any:
        return SimpleNamespace(pooler_output=self.visual(pixel_values))


@pytest.fixture
def x() -> Tensor:
    return torch.rand(8, 3, 4, 4, generator=torch.Generator().manual_seed(1))


TEXTS = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))


def test_logits_are_scaled_cosines(x: Tensor) -> None:
    clip = Clip().eval()
    cosines = F.cosine_similarity(clip.visual(x)[:, None], TEXTS[None], dim=-1)
    for encoder in (
        clip.visual,
        clip.encode_image,
        clip.get_image_features,
        lambda x: {"image_embeds": clip.visual(x)},
    ):
        assert_close(ZeroShot(encoder, TEXTS, scale=20.0)(x), 20 * cosines)
    prompts = torch.stack([TEXTS, 3 * TEXTS], dim=1)
    assert_close(ZeroShot(clip.visual, prompts, scale=20.0)(x), 20 * cosines)


def test_the_model_behind_a_method_is_part_of_it(x: Tensor) -> None:
    clip = Clip()
    model = ZeroShot(clip.encode_image, TEXTS)
    assert len([*model.parameters()]) == 4
    with pytest.raises(ModelError, match="train mode"):
        gradreg.attack(model, x, torch.zeros(8, dtype=torch.int64), attacks="quick")
    assert next(model.double().parameters()).dtype == torch.float64
    assert model.eval()(x.double()).dtype == torch.float64


def test_it_is_attacked_diagnosed_and_evaluated(x: Tensor) -> None:
    model = ZeroShot(Clip().encode_image, TEXTS, scale=20.0).eval()
    y = model(x).argmax(1)
    found = gradreg.attack(model, x, y, threat="l2", attacks="quick")
    broken = found.success & (found.distance > 0)
    assert broken.any()
    assert (model(found.adversarial).argmax(1) != y)[broken].all()
    assert gradreg.diagnose(model, x, y)
    assert gradreg.evaluate(model, (x, y), threat="l2", images=4, attacks="quick", diagnosis=False).threats


def test_what_is_refused(x: Tensor) -> None:
    for features in (TEXTS[0], TEXTS[:1], TEXTS.long(), "cat"):
        with pytest.raises(ModelError, match="text_features must be a float tensor"):
            ZeroShot(Clip().visual, features)  # type: ignore[arg-type]
    for bad in (torch.zeros(4, 6), torch.full((4, 6), torch.nan)):
        with pytest.raises(ModelError, match="finite and not zero"):
            ZeroShot(Clip().visual, bad)
    with pytest.raises(ModelError, match=r"features of shape \(N, 5\), like text_features; got \(8, 6\)"):
        ZeroShot(Clip().visual, torch.rand(4, 5))(x)
    with pytest.raises(ModelError, match=r"must return a tensor of features, .*; got str"):
        ZeroShot(lambda x: "features", TEXTS)(x)
    with pytest.raises(ModelError, match="encoder must be a module or a function"):
        ZeroShot("clip", TEXTS)  # type: ignore[arg-type]
