"""`hf:` with transformers' own classifiers, tiny and untrained, saved to folders as anybody saves them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from torch.testing import assert_close

import gradreg
from commands import status
from gradreg.runs.opening import open_model

COMMON: dict[str, Any] = {"num_labels": 3, "hidden_sizes": [8, 16], "depths": [1, 1]}
SMALL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
KINDS: dict[str, Any] = {
    "vit": lambda: transformers.ViTForImageClassification(
        transformers.ViTConfig(**SMALL, image_size=32, patch_size=8, num_labels=3)
    ),
    "deit": lambda: transformers.DeiTForImageClassification(
        transformers.DeiTConfig(**SMALL, image_size=32, patch_size=8, num_labels=3)
    ),
    "resnet": lambda: transformers.ResNetForImageClassification(
        transformers.ResNetConfig(**COMMON, embedding_size=8, layer_type="basic")
    ),
    "convnext": lambda: transformers.ConvNextForImageClassification(
        transformers.ConvNextConfig(**COMMON, num_stages=2, patch_size=2)
    ),
}
PROCESSORS: dict[str, Any] = {
    "half": lambda: transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}),
    "imagenet": lambda: transformers.ViTImageProcessorPil(
        size={"height": 32, "width": 32}, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225]
    ),
    "bytes": lambda: transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}, rescale_factor=1 / 127.5),
}


def saved(folder: Path, kind: str, processor: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model, prepare = KINDS[kind]().eval(), PROCESSORS[processor]()
    model.save_pretrained(folder)
    prepare.save_pretrained(folder)
    return model, prepare


def photos(folder: Path, size: int = 32, images: int = 4) -> str:
    from PIL import Image

    draw = np.random.default_rng(0)
    for part in ("train", "val"):
        for name in ("a", "b", "c"):
            (folder / part / name).mkdir(parents=True)
            for number in range(images):
                pixels = draw.integers(256, size=(size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.png")
    return f"folder:{folder}"


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_logits_are_those_of_the_library(kind: str, processor: str, tmp_path: Path) -> None:
    """Bytes through the library's processor and model, against pixels through ours."""
    theirs, prepare = saved(tmp_path, kind, processor)
    pixels = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8)
    inputs = prepare(list(pixels.permute(0, 2, 3, 1).numpy()), return_tensors="pt")
    ours = gradreg.build(f"hf:{tmp_path}", classes=3, pretrained=True).eval()
    with torch.no_grad():
        assert_close(ours(pixels / 255), theirs(**inputs).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["vit", "convnext"])
def test_an_evaluation_of_a_saved_classifier(kind: str, tmp_path: Path) -> None:
    saved(tmp_path / "model", kind, "half")
    data = photos(tmp_path / "photos")
    out = tmp_path / "evaluation"
    few = ["--images", "6", "--attacks", "quick", "--threat", "linf", "--out", str(out)]
    assert status(["evaluate", f"hf:{tmp_path / 'model'}", "--data", data, *few]) in (0, 3)
    found = gradreg.evaluation.load(out)
    assert found.data.shape == (3, 32, 32)
    assert status(["diagnose", f"hf:{tmp_path / 'model'}", "--data", data, "--images", "4"]) in (0, 1)


def test_images_of_another_size_are_resized_inside(tmp_path: Path) -> None:
    saved(tmp_path / "model", "vit", "half")
    opened = open_model(f"hf:{tmp_path / 'model'}", photos(tmp_path / "photos", size=24), size=24)
    x = opened.data.test.floats([0, 5])
    assert x.shape[-2:] == (24, 24)
    found = gradreg.attack(opened.model, x, torch.tensor([0, 1]), threat="l2", attacks="quick")
    assert found.distance.isfinite().all()
    assert found.adversarial.shape == x.shape


def test_the_classifier_itself_in_every_function(tmp_path: Path) -> None:
    """Not by name: the object with `.logits` that transformers returns, behind a Classifier for its normalisation."""
    theirs, _ = saved(tmp_path, "vit", "half")
    x, y = torch.rand(6, 3, 32, 32), torch.tensor([0, 1, 2, 0, 1, 2])
    out = gradreg.regularized_loss(theirs, x, y, threat="linf", eps=8 / 255)
    out.loss.backward()
    assert out.grad_norm.gt(0).all()
    model = gradreg.Classifier(theirs, mean=[0.5] * 3, std=[0.5] * 3)
    assert gradreg.attack(model, x, y, threat="l2", attacks="quick").distance.isfinite().all()
    regularity = gradreg.estimate_regularity(model, (x, y), threat="l2", method="local")
    assert gradreg.bounds(model, x, y, regularity).lipschitz.ge(0).all()
    assert len(gradreg.certify(model, x, sigma=0.25, n=200).radius) == 6


def test_dicts_of_logits_too(tmp_path: Path) -> None:
    """`return_dict=True` objects are mappings; a plain dict is read alike."""
    theirs, _ = saved(tmp_path, "vit", "half")

    def as_dict(x: Tensor) -> dict[str, Tensor]:
        return {"logits": theirs(x).logits}

    x, y = torch.rand(2, 3, 32, 32), torch.tensor([0, 1])
    one = gradreg.regularized_loss(theirs, x, y, eps=0.1).loss
    assert_close(gradreg.regularized_loss(as_dict, x, y, eps=0.1).loss, one)


def test_clip_as_a_zero_shot_classifier() -> None:
    """A tiny CLIP of transformers: the logits are those that it gives for images and texts together."""
    torch.manual_seed(0)
    small, tokens = {**SMALL, "projection_dim": 16}, {"eos_token_id": 98, "bos_token_id": 97, "pad_token_id": 0}
    clip = transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config={**small, "vocab_size": 99, "max_position_embeddings": 8, **tokens},
            vision_config={**small, "image_size": 32, "patch_size": 8},
            projection_dim=16,
        )
    ).eval()
    x, words = torch.rand(4, 3, 32, 32), torch.randint(1, 98, (3, 6))
    with torch.no_grad():
        both = clip(input_ids=words, pixel_values=x)
    model = gradreg.ZeroShot(clip.get_image_features, both.text_embeds, clip.logit_scale.exp())
    assert_close(model(x), both.logits_per_image, rtol=1e-4, atol=1e-4)
    found = gradreg.attack(model, x, model(x).argmax(1), threat="linf", attacks="quick")
    assert found.success.any()
