"""A zero-shot classifier: an image encoder and one text feature per class, as logits."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from gradreg.checks.scalars import check_number, shown
from gradreg.checks.tensors import check_dense, check_width
from gradreg.errors import ModelError

# What encoders of Hugging Face name the features of an image.
_FEATURES = ("image_embeds", "pooler_output")


class ZeroShot(nn.Module):
    """Logits `scale` · cos(image feature, text feature), as CLIP and its kin classify.

    `encoder` is a module or a method of one, from images to features: `clip.encode_image`, `model.get_image_features`.
    `text_features` has a row per class, or per class and prompt, of which the mean direction is taken. `scale` is the
    temperature's inverse that the model was trained with: `model.logit_scale.exp()`. Put normalisation around it with
    `Classifier(ZeroShot(…), mean=…, std=…)`.
    """

    text_features: Tensor

    def __init__(self, encoder: Callable[[Tensor], Any], text_features: Tensor, scale: float | Tensor = 100.0) -> None:
        super().__init__()
        if not callable(encoder):
            raise ModelError(f"encoder must be a module or a function from images to features; got {shown(encoder)}.")
        if isinstance(text_features, Tensor):
            check_dense("text_features", text_features)
            check_width("text_features", text_features)
        fine = isinstance(text_features, Tensor) and text_features.is_floating_point() and text_features.ndim in (2, 3)
        if not fine or len(text_features) < 2:
            raise ModelError(
                "text_features must be a float tensor of shape (classes ≥ 2, features) or (classes, prompts, "
                f"features); got {shown(text_features)}."
            )
        directions = F.normalize(text_features.detach(), dim=-1)
        directions = F.normalize(directions.mean(1), dim=-1) if directions.ndim == 3 else directions
        if not bool((directions.norm(dim=-1) > 0.5).all()):
            raise ModelError("text_features must be finite and not zero; got a class without a direction.")
        self.scale = check_number("scale", scale.detach() if isinstance(scale, Tensor) else scale, above=0)
        # A method's module belongs to this one, so that it is moved, fingerprinted and checked for its mode with it.
        self.owner = getattr(encoder, "__self__", None) if not isinstance(encoder, nn.Module) else None
        self.encoder = encoder
        self.training = bool(getattr(self.owner or encoder, "training", False))
        self.register_buffer("text_features", directions.clone())

    def forward(self, x: Tensor) -> Tensor:
        """The logits of images."""
        features = _features(self.encoder(x))
        if features.ndim != 2 or features.shape[1] != self.text_features.shape[1]:
            raise ModelError(
                f"The encoder must return features of shape (N, {self.text_features.shape[1]}), like text_features; "
                f"got {tuple(features.shape)}."
            )
        return self.scale * F.normalize(features, dim=1) @ self.text_features.to(features).T


def _features(returned: Any) -> Tensor:
    if isinstance(returned, Tensor):
        return returned
    for name in _FEATURES:
        found = returned.get(name) if isinstance(returned, Mapping) else getattr(returned, name, None)
        if isinstance(found, Tensor):
            return found
    raise ModelError(
        f"The encoder must return a tensor of features, or an object with {' or '.join(_FEATURES)}; got "
        f"{type(returned).__name__}."
    )
