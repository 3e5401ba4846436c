"""What an evaluation found: facts about the model, and one value per image for everything that was evaluated.

The report reads nothing else: tables and curves are computed from the columns, so that they cannot disagree.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, device

from gradreg._version import __version__
from gradreg.bounds.validity import Violations, violations
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_number
from gradreg.codec import LEFT_OUT
from gradreg.data.source import known_radii
from gradreg.diagnosis.flags import Flag
from gradreg.display.records import Recorded, Records
from gradreg.display.summary import Shown, Summary
from gradreg.errors import DataError
from gradreg.evaluation.fresh import FreshDraws
from gradreg.evaluation.gallery import Gallery
from gradreg.evaluation.shares import Share, share_of
from gradreg.norms import THREATS, robust_at, usual
from gradreg.provenance import commit, hardware
from gradreg.runs.subject import Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Relative; two machines round a norm differently by far less.
_SAME = 1e-4


@dataclass(frozen=True)
class TestSet:
    """Where the images came from."""

    name: str
    images: int
    """How many it has; the evaluation looked at a random part of them."""
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    radii: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """By threat, where robust error is quoted on these images, if the data set has radii of its own."""
    pixels: tuple[int, ...] = field(default=(), metadata=LEFT_OUT)
    """Of images without a name of their own: a fingerprint of the pixels of each that was evaluated."""

    def usual_radii(self, threat: str) -> tuple[float, ...]:
        """Where robust error is quoted: the data set's radii, else the threat's."""
        # Files of before radii were recorded name the data set all the same.
        return {**known_radii(self.name), **self.radii}.get(threat) or THREATS[threat].usual_radii

    def usual_radius(self, threat: str) -> float:
        """The one of them that models are compared at: the second."""
        return usual(self.usual_radii(threat))


@dataclass(frozen=True)
class Settings:
    """What the figures depend on besides the model and the images."""

    seed: int
    attacks: str
    regularity: str
    topk: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    """Every option by name, as JSON has it; empty in files of before they were recorded."""


@dataclass(frozen=True)
class Origin:
    """Which code on which machine made it."""

    gradreg: str
    torch: str
    commit: str
    """Of gradreg's own checkout, with a plus sign where it was changed since; empty if it is installed otherwise."""
    machine: str
    created: str
    """UTC, ISO 8601."""

    @classmethod
    def now(cls, place: device) -> "Origin":
        """This code on this machine, now."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(__version__, torch.__version__, commit(), hardware(place), created)


@dataclass(frozen=True)
class Attacked:
    """The nearest adversarial image of each image, as `AttackResult` says it."""

    distance: Tensor
    winner: tuple[str, ...]
    forwards: Tensor
    backwards: Tensor
    seconds: float


@dataclass(frozen=True)
class Calibrated:
    """Bounds that hold against the attacks of this evaluation for a share 1 − α of images.

    Each half of the images, which are in random order, is calibrated by the other half.
    """

    bound: Tensor
    alpha: float
    scale: float
    """s of all images: what the bound of another image would be divided by."""
    n: int
    """Correctly classified images of the smaller half."""


@dataclass(frozen=True)
class Bounded:
    """Both bounds of each image, and the regularity that they were computed from."""

    gradient_norm: Tensor
    lipschitz_bound: Tensor
    omega_bound: Tensor
    method: str
    lipschitz: float
    """L; averaged over images where each has its own."""
    eps: tuple[float, ...]
    omega: tuple[float, ...]
    """ω at `eps`."""
    calibration_images: int
    flags: tuple[str, ...]
    seconds: float
    calibrated: Calibrated | None = None
    uncalibrated: str = ""
    """Why there are no calibrated bounds; empty also in files of before there were any."""

    def omega_at(self, eps: float) -> float:
        """ω(ε) at the next radius of the grid; NaN beyond its end."""
        return next((omega for radius, omega in zip(self.eps, self.omega, strict=True) if radius >= eps), float("nan"))


@dataclass(frozen=True)
class Confirmed:
    """What a reference attack makes of the images at one radius."""

    attack: str
    version: str
    eps: float
    robust: Tensor
    """Images that are right before and after it."""
    forwards: float
    """Mean over the images, since the reference does not say which of them it propagates."""
    backwards: float
    seconds: float


@dataclass(frozen=True)
class OwnNorm:
    """A norm without a short name, as far as a file can hold it."""

    symbol: str
    dual: str
    kind: str
    """Its class, as module.name."""
    probe: tuple[float, ...]
    """What it and its dual make of fixed images: see `gradreg.norms.probe`."""

    def same_as(self, other: "OwnNorm") -> bool:
        """Whether both compute the same, up to rounding."""
        pairs = list(zip(self.probe, other.probe, strict=False))
        return len(self.probe) == len(other.probe) and all(abs(a - b) <= _SAME * max(abs(a), abs(b)) for a, b in pairs)


@dataclass(frozen=True)
class ThreatRecord:
    """All that was found in one threat."""

    threat: str
    attacked: Attacked
    bounded: Bounded | None
    """None where the bounds were refused; `refusal` says why."""
    refusal: str
    flags: tuple[Flag, ...]
    gallery: Gallery | None = None
    confirmed: tuple[Confirmed, ...] = ()
    norm: OwnNorm | None = None
    """None for a norm with a short name."""
    fresh: FreshDraws | None = field(default=None, metadata=LEFT_OUT)
    """Of a randomised model: its answers to the adversarial images under fresh draws."""

    def __post_init__(self) -> None:
        if (self.threat in THREATS) != (self.norm is None):
            raise DataError(
                f"threat must be one of {', '.join(THREATS)}, or a norm that is described; got {self.threat!r}."
            )

    @property
    def symbol(self) -> str:
        """The norm as it is written: l∞."""
        return THREATS[self.threat].symbol if self.norm is None else self.norm.symbol

    @property
    def distance(self) -> Tensor:
        """The nearest adversarial image known of each image: by our attacks, or by a reference within its radius."""
        distance = self.attacked.distance
        for confirmed in self.confirmed:
            within = torch.full_like(distance, confirmed.eps).minimum(distance)
            distance = distance.where(confirmed.robust, within)
        return distance

    def omega_validity(self) -> Violations | None:
        """How the ω-bound fared against the attacks."""
        return violations(self.bounded.omega_bound, self.distance) if self.bounded else None

    def lipschitz_validity(self) -> Violations | None:
        """How the L-bound fared against the attacks."""
        return violations(self.bounded.lipschitz_bound, self.distance) if self.bounded else None

    def calibrated_validity(self) -> Violations | None:
        """How the calibrated bound fared against the attacks it is about: our own."""
        calibrated = self.bounded.calibrated if self.bounded else None
        return violations(calibrated.bound, self.attacked.distance, kind="calibrated") if calibrated else None

    def robust(self, eps: float) -> Tensor:
        """Images that nothing broke within ε: neither our attacks nor a reference attack at this radius or less."""
        return robust_at(self.distance, eps)

    def robust_to_attacks(self, eps: float) -> Tensor:
        """Images that our attacks alone did not break within ε."""
        return robust_at(self.attacked.distance, eps)

    def robust_accuracy(self, eps: float) -> Share:
        """The fraction of images that nothing broke within ε, with its interval."""
        return share_of(self.robust(eps))

    def robust_error(self, eps: float) -> Share:
        """The fraction of images that are misclassified or were broken within ε, with its interval."""
        return share_of(~self.robust(eps))

    def missed(self, confirmed: Confirmed) -> Tensor:
        """Images that the reference broke and our attacks did not: their distances are longer than they should be."""
        return self.robust_to_attacks(confirmed.eps) & ~confirmed.robust

    def gained(self, confirmed: Confirmed) -> Tensor:
        """Images that our attacks broke within the radius and the reference did not."""
        return confirmed.robust & ~self.robust_to_attacks(confirmed.eps)

    def mean_distance(self) -> float:
        """Over the images that could be broken, the misclassified ones counting 0; NaN if none could."""
        found = self.distance[self.distance.isfinite()].double()
        return float(found.mean()) if len(found) else float("nan")


@dataclass(frozen=True)
class Seen:
    """How often noisy images were given the class that was tested: p_A, estimated."""

    frequency: Tensor


@dataclass(frozen=True)
class Smoothed:
    """Certificates of the smoothed classifier, l2, one per image."""

    sigma: float
    alpha: float
    n: int
    radii: tuple[float, ...]
    prediction: Tensor
    radius: Tensor
    samples: Tensor
    seconds: float
    seen: Seen | None = None
    """None in files of before it was kept."""


@dataclass(frozen=True, repr=False)
class Evaluation(Shown, Recorded):
    """A model evaluated on a selection of test images; `save` and `load` are in `gradreg.evaluation.files`."""

    subject: Subject
    data: TestSet
    settings: Settings
    origin: Origin
    index: Tensor
    """Positions of the images in the test set."""
    label: Tensor
    prediction: Tensor
    """The label where it is among the k largest logits, else the class of the largest."""
    margin: Tensor
    """Of softmax probabilities: the k-th largest of the other classes less the true one's; negative is correct."""
    threats: Mapping[str, ThreatRecord]
    smoothing: tuple[Smoothed, ...] = ()
    clean: tuple[int, int] | None = None
    """Errors and images of the whole test set, if it was run through."""
    notes: tuple[str, ...] = field(default=())
    fresh: FreshDraws | None = field(default=None, metadata=LEFT_OUT)
    """Of a randomised model: its answers to the images under fresh draws."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def wrong(self) -> Tensor:
        """Images that are misclassified as they are."""
        return self.prediction != self.label

    @validated
    def certified(self, smoothed: Smoothed, radius: float) -> Tensor:
        """Images that the smoothed classifier gets right with a certificate of at least that radius."""
        return (smoothed.prediction == self.label) & (smoothed.radius >= check_number("radius", radius, least=0))

    @validated
    def sure(self, smoothed: Smoothed, frequency: float) -> Tensor | None:
        """Images that the smoothed classifier gets right with that frequency under noise; None where it is unknown."""
        frequency = check_number("frequency", frequency, least=0, most=1)
        if smoothed.seen is None:
            return None
        return (smoothed.prediction == self.label) & (smoothed.seen.frequency >= frequency)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the files of `gradreg.evaluation.files`."""
        from gradreg.evaluation.files import save

        save(self, folder)

    def summary(self) -> Summary:
        from gradreg.evaluation.showing import summary

        return summary(self)

    def records(self) -> Records:
        from gradreg.evaluation.showing import records

        return records(self)

    def plot(self) -> "Figure":
        """Robust accuracy against distance by attacks, bounds and certificates, a panel for each threat."""
        from gradreg.evaluation.showing import plotted

        return plotted(self)

    def proven_wrong(self) -> bool:
        """Whether any threat carries an error that no model can explain: a bug in gradreg or in the model's code."""
        from gradreg.diagnosis import is_proven_bug

        return any(is_proven_bug(list(record.flags)) for record in self.threats.values())
