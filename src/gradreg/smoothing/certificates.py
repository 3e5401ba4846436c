"""The certificates of a set of images."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count, Natural, NotNegative, Range, check_numbers, shown
from gradreg.codec import join
from gradreg.columns import check_floats, check_whole
from gradreg.display.records import Column, Recorded, Records
from gradreg.display.summary import Shown, Summary, counted, images, spread
from gradreg.errors import ConfigError, DataError
from gradreg.reading import one_sentence
from gradreg.storage import read, write

# The exact boundaries of ten million samples take minutes; the radius grows with the root of log n.
_MOST_SAMPLES = 10_000_000
_TENSORS = ("index", "prediction", "radius", "samples")
_FREQUENCY = "frequency"

Sigma = Annotated[float, Range(above=0, usual="0.25 is usual")]
Alpha = Annotated[float, Range(above=0, below=1, usual="the probability of a wrong certificate; 0.001 is usual")]
Samples = Annotated[int, Range(least=1, most=_MOST_SAMPLES, usual="samples per image; 100,000 is usual")]
Method = Literal["sequential", "cohen"]


@dataclass(frozen=True)
class Settings:
    """What a certificate depends on, besides the model and the images."""

    sigma: Sigma
    alpha: Alpha
    n: Samples
    n0: Count
    radii: tuple[NotNegative, ...] | None
    method: Method
    topk: Count
    seed: Natural
    given_labels: bool
    randomized: bool = False
    """By Cohen's procedure: the limit that fails with probability α exactly."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.n < self.n0:
            raise ConfigError(
                f"n0 ≥ 1 samples must pick the class and n ≥ n0 others test it; got n0={self.n0}, n={self.n}."
            )
        if self.randomized and self.method != "cohen":
            raise ConfigError('randomized=True needs method="cohen": the sequential test has no such limit.')
        if self.radii is not None:
            check_numbers("radii", self.radii, ascending=True, least=0)


@dataclass(frozen=True, repr=False)
class Certificates(Shown, Recorded):
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
    frequency: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64, device="cpu"))
    """How often noisy images were given the class: p_A, estimated. Empty in files of before it was kept."""

    kind = "probabilistic"

    def __len__(self) -> int:
        return len(self.prediction)

    def save(self, path: str | Path) -> None:
        """Write to one safetensors file."""
        facts: dict[str, object] = {"settings": asdict(self.settings), "images": self.images}
        tensors = {name: getattr(self, name).cpu() for name in (*_TENSORS, _FREQUENCY)}
        write(path, "certificates", tensors, facts)

    @classmethod
    def load(cls, path: str | Path) -> "Certificates":
        """Read what `save` wrote."""
        tensors, facts = read(path, "certificates")
        with one_sentence(path, "delete it"):
            described: _Described = join(_Described, facts, {})
            if set(tensors) - {_FREQUENCY} != set(_TENSORS):  # files of before it was kept have no frequency
                raise DataError(f"It must hold {', '.join(_TENSORS)}; got {', '.join(tensors)[:200]}.")
            found = cls(**tensors, settings=described.settings, images=described.images)
            found._check()
        return found

    def summary(self) -> Summary:
        """How many images have a certificate, how large it is and what it cost."""
        settings, n = self.settings, len(self.index)
        held = self.prediction >= 0
        return Summary(
            f"Certificates: {images(n)}, l2, of the classifier smoothed with σ = {settings.sigma:g}",
            [
                ("each wrong", f"with probability {settings.alpha:g} at most"),
                ("certified", counted(int(held.sum()), n) or ("none" if n else "")),
                ("abstained", counted(int((~held).sum()), n)),
                ("radius", spread(self.radius[held])),
                ("radii tested", ", ".join(f"{radius:g}" for radius in settings.radii or ())),
                ("samples", f"{spread(self.samples)} per image" if n else ""),
                ("method", settings.method + (", randomized" if settings.randomized else "")),
                ("classes", "given as labels, so no certificate of a deployed classifier" * settings.given_labels),
                ("top-k", str(settings.topk) if settings.topk > 1 else ""),
            ],
        )

    def records(self) -> Records:
        """Per image: the smoothed classifier's class, the radius within which it holds, and the samples drawn."""
        columns = {
            "index": Column("Position among the images that were certified.", self.index),
            "prediction": Column("Class of the smoothed classifier; -1: it abstained.", self.prediction, "class"),
            "radius": Column("l2 radius within which that class holds; 0 where it abstained.", self.radius, "pixels"),
            "samples": Column("Noisy images classified for it.", self.samples, "propagations"),
        }
        if len(self.frequency):
            columns["frequency"] = Column("Share of noisy images given the class.", self.frequency, "fraction")
        return Records("certificates", {"threat": "l2", "certificate": self.kind, **asdict(self.settings)}, columns)

    def _check(self) -> None:
        """Refuse certificates that no certification can give."""
        n, settings = self.prediction.numel(), self.settings
        check_whole("prediction", self.prediction, n, -1)
        check_floats("radius", self.radius, n, 0.0)
        check_whole("samples", self.samples, n, 0, settings.n + settings.n0)
        check_whole("index", self.index, n)
        check_floats("frequency", self.frequency, n if self.frequency.numel() else 0, 0.0, 1.0)
        if len(self.index.unique()) < n:
            raise DataError("index must name each image once; got one twice.")
        if bool((self.radius[self.prediction < 0] > 0).any()):
            raise DataError("radius must be 0 where the classifier abstained.")
        if settings.radii is not None and not {0.0, *settings.radii} >= set(self.radius.tolist()):
            raise DataError(f"radius must be 0 or one of {list(settings.radii)[:8]}.")


def merge(parts: Sequence[Certificates]) -> Certificates:
    """The certificates of all shards of one set of images, in the order of the images."""
    if not isinstance(parts, Sequence) or not all(isinstance(part, Certificates) for part in parts):
        raise ConfigError(f"parts must be a list of the Certificates of every shard; got {shown(parts)}.")
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
    known = all(len(part.frequency) for part in parts)
    names = (*_TENSORS, _FREQUENCY) if known else _TENSORS
    joined = {name: torch.cat([getattr(part, name) for part in parts])[order] for name in names}
    return Certificates(**joined, settings=parts[0].settings, images=parts[0].images)


@dataclass(frozen=True)
class _Described:
    """What a file of certificates says about its tensors."""

    settings: Settings
    images: str
