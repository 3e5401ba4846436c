"""The certificates of a set of images."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from gradreg.errors import ConfigError, DataError
from gradreg.storage import read, write

_TENSORS = ("index", "prediction", "radius", "samples")


@dataclass(frozen=True)
class Settings:
    """What a certificate depends on, besides the model and the images."""

    sigma: float
    alpha: float
    n: int
    n0: int
    radii: tuple[float, ...] | None
    method: str
    topk: int
    seed: int
    given_labels: bool

    def __post_init__(self) -> None:
        for name, usual in (("sigma", "0.25"), ("alpha", "0.001")):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"{name} must be a finite number above 0 ({usual} is usual); got {value}.")
        if not self.alpha < 1:
            raise ConfigError(
                f"alpha, the probability of a wrong certificate, must lie between 0 and 1; got {self.alpha}."
            )
        if self.n0 < 1 or self.n < self.n0:
            raise ConfigError(
                f"n0 ≥ 1 samples must pick the class and n ≥ n0 others test it; got n0={self.n0}, n={self.n}."
            )
        if self.method not in ("sequential", "cohen"):
            raise ConfigError(f"method must be 'sequential' or 'cohen'; got {self.method!r}.")
        if self.radii is not None and not _ascending(self.radii):
            raise ConfigError(f"radii must be one or more numbers ≥ 0 in ascending order; got {list(self.radii)}.")


@dataclass(frozen=True)
class Certificates:
    """Each image's prediction by the *smoothed* classifier, and the l2 radius within which it holds.

    Each certificate is wrong with probability α at most, over the noise drawn; the kind is "probabilistic".
    """

    prediction: Tensor
    """The class; −1: abstained, since not even the smallest radius asked for could be shown."""
    radius: Tensor
    """With `radii`: the largest of them that holds; 0 where none does."""
    samples: Tensor
    """Noisy images that were classified for it, those that picked the class included."""
    index: Tensor
    """Which of the images these are: all of them, or those of one shard."""
    settings: Settings
    images: str
    """Fingerprint of the whole set of images."""

    kind = "probabilistic"

    def __len__(self) -> int:
        return len(self.prediction)

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file."""
        facts: dict[str, object] = {"settings": asdict(self.settings), "images": self.images}
        write(path, "certificates", {name: getattr(self, name).cpu() for name in _TENSORS}, facts)

    @classmethod
    def load(cls, path: str | Path) -> "Certificates":
        """Read what `save` wrote."""
        tensors, facts = read(path, "certificates")
        return cls(**tensors, settings=_settings_from(facts["settings"]), images=str(facts["images"]))


def merge(parts: Sequence[Certificates]) -> Certificates:
    """The certificates of all shards of one set of images, in the order of the images."""
    if not parts:
        raise ConfigError("There is nothing to merge: pass the certificates of every shard.")
    if len({(part.settings, part.images) for part in parts}) > 1:
        raise DataError("Certificates must be of the same images with the same settings to be merged.")
    index = torch.cat([part.index for part in parts])
    order = index.argsort()
    if not torch.equal(index[order], torch.arange(len(index), device=index.device)):
        raise DataError(
            f"The shards cover {len(set(index.tolist()))} images, some of them missing or twice: merge them all."
        )
    joined = {name: torch.cat([getattr(part, name) for part in parts])[order] for name in _TENSORS}
    return Certificates(**joined, settings=parts[0].settings, images=parts[0].images)


def _settings_from(facts: object) -> Settings:
    """Settings that were JSON."""
    if not isinstance(facts, dict) or set(facts) != {field.name for field in fields(Settings)}:
        raise DataError("The file's settings are not those of a certification by this version of gradreg.")
    radii = facts["radii"]
    return Settings(**{**facts, "radii": None if radii is None else tuple(radii)})


def _ascending(radii: tuple[float, ...]) -> bool:
    rising = all(low < high for low, high in pairwise(radii))
    return len(radii) > 0 and radii[0] >= 0 and radii[-1] < float("inf") and rising
