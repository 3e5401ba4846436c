"""A library's preprocessing as layers, so that a model takes [0, 1] pixels of any size and distances stay in them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from gradreg.checks.scalars import check_integer, check_number, check_numbers
from gradreg.errors import ModelError
from gradreg.models.normalize import Normalize

_FOLDED = ("do_resize", "do_rescale", "do_normalize", "do_center_crop", "do_convert_rgb", "do_flip_channel_order")
SHAPING = ("do_resize", "do_center_crop", "do_flip_channel_order", "size", "crop_size", "resample")
"""What is about the size and the order of channels, not about the values of pixels."""
# They are about labels, not about images.
_OF_LABELS = ("do_reduce_labels",)
# As Pillow numbers its filters.
_FILTERS = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}


class Resize(nn.Module):
    """Images of another size, resized to the one that a model takes; images of that size pass as they are."""

    def __init__(self, height: int, width: int, mode: str = "bilinear") -> None:
        super().__init__()
        self.size, self.mode = (height, width), mode

    def forward(self, pixels: Tensor) -> Tensor:
        """The resized images."""
        if pixels.shape[-2:] == self.size:
            return pixels
        smooth = self.mode in ("bilinear", "bicubic")
        return F.interpolate(pixels, self.size, mode=self.mode, antialias=smooth)

    def extra_repr(self) -> str:
        """The size, as `print(model)` shows it."""
        return f"{self.size[0]}×{self.size[1]}, {self.mode}"


class FlipChannels(nn.Module):
    """RGB as BGR."""

    def forward(self, pixels: Tensor) -> Tensor:
        """The channels in the opposite order."""
        return pixels.flip(1)


@dataclass(frozen=True)
class Preprocessing:
    """What is done to an image before a model gets it: a size, the order of channels, mean and deviation of pixels."""

    size: tuple[int, int] | None
    mode: str
    flip: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def of(cls, config: Mapping[str, Any], source: str) -> "Preprocessing":
        """From the content of a preprocessor_config.json; what cannot be a layer is refused."""
        extra = [key for key, value in config.items() if key.startswith("do_") and value is True]
        if unknown := [key for key in extra if key not in (*_FOLDED, *_OF_LABELS)]:
            raise ModelError(
                f"{source} asks for {unknown[0]}, which cannot be made a layer: pass mean= and std= (--mean, --std), "
                "and images that are prepared otherwise."
            )
        mean, std = _statistics(config, source)
        size = _size(config, source) if config.get("do_resize", True) or config.get("do_center_crop") else None
        resample = config.get("resample", 2)
        if resample not in _FILTERS:
            raise ModelError(f"{source}: resample must be one of {sorted(_FILTERS)}; got {resample!r}.")
        return cls(size, _FILTERS[resample], config.get("do_flip_channel_order") is True, mean, std)

    def layers(self) -> dict[str, nn.Module]:
        """The layers before the model, by name."""
        found: dict[str, nn.Module] = {} if self.size is None else {"resize": Resize(*self.size, self.mode)}
        if self.flip:
            found["flip"] = FlipChannels()
        return {**found, "normalize": Normalize(self.mean, self.std)}


def _statistics(config: Mapping[str, Any], source: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of [0, 1] pixels, with the rescaling of bytes folded in: (255 f p − o − m) / s."""
    rescaled = config.get("do_rescale", True) is not False
    default = 1 / 255 if rescaled else 1.0
    factor = check_number("rescale_factor", config.get("rescale_factor", default) if rescaled else 1.0, above=0)
    unit = 255 * factor
    if math.isclose(unit, 1, rel_tol=1e-6):
        unit = 1.0
    offset = 1.0 if rescaled and config.get("rescale_offset") is True else 0.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    if config.get("do_normalize", "image_mean" in config) is not False:
        if "image_mean" not in config or "image_std" not in config:
            raise ModelError(f"{source} must have image_mean and image_std; got neither or one of them.")
        mean = check_numbers("image_mean", config["image_mean"], error=ModelError)
        std = check_numbers("image_std", config["image_std"], above=0, error=ModelError)
    return tuple((m + offset) / unit for m in mean), tuple(s / unit for s in std)


def _size(config: Mapping[str, Any], source: str) -> tuple[int, int]:
    """Height and width of what the model gets: of the crop if there is one, otherwise of the resized image."""
    chosen = config.get("crop_size") if config.get("do_center_crop") else config.get("size")
    if isinstance(chosen, Mapping):
        sides = [chosen.get("height", chosen.get("shortest_edge")), chosen.get("width", chosen.get("shortest_edge"))]
    else:
        sides = list(chosen) if isinstance(chosen, list | tuple) else [chosen, chosen]
    if len(sides) != 2 or any(not isinstance(side, int) for side in sides):
        raise ModelError(f"{source} must say the size of images as height and width; got {chosen!r}.")
    height, width = (check_integer("size", side, least=1, most=10_000, error=ModelError) for side in sides)
    return height, width
