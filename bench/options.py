"""What each measurement measures and how much of it: the command line is made from these, and they check themselves."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Between0And1
from gradreg.errors import ConfigError
from gradreg.norms import ThreatName

DIGITS = "mnist5k"
NETWORKS = ("undefended", "regularised")
THREATS: tuple[ThreatName, ...] = ("l2", "linf")
PEERS = {
    "foolbox": ("foolbox", "foolbox"),
    "art": ("art", "adversarial-robustness-toolbox"),
    "autoattack": ("pyautoattack", "pyautoattack"),
}
"""What a peer is called here: the module it is imported as, and the package it comes in."""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What a training step costs: time, FLOPs and peak memory, as multiples of plain training."""

    model: Literal["small", "compact", "resnext34_2x32", "resnet50"] = "compact"
    batch_size: int = 128
    rounds: int = 5
    """How often each step is timed, interleaved; the best counts."""
    activation: Literal["relu", "c2relu", "gelu", "silu", "softplus"] | None = None
    """Default: the network's own."""
    threads: int = 1
    compiled: bool = False
    """Also time the network behind torch.compile: needs a C++ compiler and a minute or more."""
    channels_last: bool = False
    """Use the memory layout that the CIFAR-10 recipes train in."""
    json: Path | None = None
    """A file to write the figures to."""

    def __post_init__(self) -> None:
        _at_least_one(self, "batch_size", "rounds", "threads")
        check_writable(self.json)

    def facts(self) -> dict[str, Any]:
        """What the figures depend on, and not where they are written to."""
        return {key: value for key, value in asdict(self).items() if key not in _PLACES}


@dataclass(frozen=True, kw_only=True)
class TwoNetworks:
    """Options of a measurement on an undefended and a regularised network."""

    data: str = DIGITS
    """The data set of the two runs; without runs it must be mnist5k."""
    undefended: Path | None = None
    """A run directory of `gradreg train`, with --regularised; default: two small networks on mnist5k are trained."""
    regularised: Path | None = None
    """The run directory of the other network."""
    epochs: int = 6
    """Of the networks that are trained here."""
    seed: int = 0
    data_dir: Path | None = None
    """Folder of the data sets; default: $GRADREG_DATA, or the user's cache folder."""
    json: Path | None = None
    """A file to write all figures to."""
    work: Path | None = None
    """A folder that keeps what is finished: the same command continues from there. Default: nothing is kept."""

    def __post_init__(self) -> None:
        _at_least_one(self, "epochs")
        if (self.undefended is None) != (self.regularised is None):
            missing = "undefended" if self.undefended is None else "regularised"
            raise ConfigError(f"Two networks are compared: also name the other run with --{missing} RUN.")
        if self.runs is None and self.data != DIGITS:
            raise ConfigError(
                f"data must be {DIGITS} unless two runs are given with --undefended and --regularised; got {self.data}."
            )
        check_writable(self.json)

    @property
    def runs(self) -> tuple[Path, Path] | None:
        """The directories of both networks; None: they are trained here."""
        if self.undefended is None or self.regularised is None:
            return None
        return self.undefended, self.regularised


@dataclass(frozen=True, kw_only=True)
class CertifyOptions(TwoNetworks):
    """How well bounds hold, how few samples certificates need, and what both cost (two hours on a core)."""

    images: int = 200
    """Test images whose bounds are compared with attacks."""
    smoothing_images: int = 200
    """Test images to certify; Cohen's procedure takes 100,000 samples per image."""
    cohen: int = 100_000
    """Samples of Cohen's procedure per image."""
    clever_samples: int = 100
    """Points per block of CLEVER."""
    rounds: int = 7
    """How often the bounds are timed; the best counts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_one(self, "images", "smoothing_images", "cohen", "clever_samples", "rounds")

    def facts(self) -> dict[str, Any]:
        """All that figures depend on, for the JSON file and for resuming."""
        places = {name: path and str(path) for name, path in zip(NETWORKS, self.runs or (None, None), strict=True)}
        return {key: value for key, value in asdict(self).items() if key not in _PLACES} | places


@dataclass(frozen=True)
class Lengths:
    """How long the peers' attacks run, and ours at equal settings; the targets are about the defaults."""

    rounds: int = 9
    """Constants that Carlini-Wagner tries."""
    cw: int = 1000
    """Steps of Carlini-Wagner per round."""
    boundary: int = 5000
    """Steps of Boundary."""
    steps: int = 1000
    """Steps of DDN and FMN."""


@dataclass(frozen=True, kw_only=True)
class AttackOptions(TwoNetworks):
    """Distances, robust accuracy and costs of our attacks beside foolbox's, ART's and AutoAttack's (slow)."""

    images: int = 100
    """Test images to attack, the last ones that both networks classify correctly; 16 took 17 minutes."""
    threats: str | Sequence[str] = "l2,linf"
    """Comma-separated: l2, linf."""
    peers: str | Sequence[str] = "foolbox,art,autoattack"
    """Libraries to run beside, comma-separated; empty for none. pip install gradreg[bench] brings them all."""
    chunk: int = 20
    """Images that are attacked together; an interruption loses at most these of one attack."""
    lengths: Lengths = field(default_factory=Lengths)

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_one(self, "images", "chunk")
        _check_known("threats", _names(self.threats), THREATS)
        _check_known("peers", _names(self.peers), PEERS)
        if not self.norms:
            raise ConfigError(f"threats must name at least one of {', '.join(THREATS)}; got none.")

    @property
    def norms(self) -> tuple[ThreatName, ...]:
        """The threats by name, in the order they are measured."""
        given = _names(self.threats)
        return tuple(name for name in THREATS if name in given)

    @property
    def peer_names(self) -> tuple[str, ...]:
        """The libraries to run beside."""
        return _names(self.peers)

    def facts(self) -> dict[str, Any]:
        """What the JSON file says of the options."""
        return {
            "images": self.images,
            "seed": self.seed,
            "epochs": self.epochs,
            "threats": self.norms,
            "peers": self.peer_names,
            "lengths": asdict(self.lengths),
            "data": self.data,
            "runs": None if self.runs is None else [str(run) for run in self.runs],
            "chunk": self.chunk,
        }


@dataclass(frozen=True, kw_only=True)
class DiagnosisOptions:
    """What every test of the diagnosis measures on honest and on broken models: the table of docs/diagnosis.md."""

    images: int = 64
    epochs: int = 6
    threat: ThreatName = "linf"
    eps: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        _at_least_one(self, "images", "epochs")
        if not self.eps > 0:
            raise ConfigError(f"eps must be positive; got {self.eps}.")


@dataclass(frozen=True, kw_only=True)
class ClaimOptions:
    """The paper's claims, each with what was measured here: the table of docs/claims.md (a quarter of an hour)."""

    only: str | Sequence[str] = ()
    """Claims to check, by key, comma-separated; default: all."""
    images: int = 200
    """Test images of the digits that a claim is measured on."""
    epochs: int = 6
    rounds: int = 5
    """How often a step is timed; the best counts."""
    seed: int = 0
    results: Path = Path("results")
    """Where the evaluations of the paper's rows are."""
    json: Path | None = None
    """A file to write all figures to."""
    work: Path | None = None
    """A folder that keeps what is finished: the same command continues from there. Default: nothing is kept."""

    def __post_init__(self) -> None:
        _at_least_one(self, "images", "epochs", "rounds")

    @property
    def keys(self) -> tuple[str, ...]:
        """The claims to check; empty: all."""
        return _names(self.only)

    def facts(self) -> dict[str, Any]:
        """What the JSON file says of the options."""
        return {"images": self.images, "epochs": self.epochs, "rounds": self.rounds, "seed": self.seed}


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """What local and calibrated bounds say on the trained CIFAR-10 networks, and on shifted images (ten minutes)."""

    images: int = 400
    """Random test images to bound, attack and split."""
    shifted: int = 150
    """Other test images, as they are and shifted, and training images."""
    splits: int = 1000
    """Random halves of the images, one of which calibrates the other."""
    alpha: Between0And1 = 0.05
    seed: int = 0
    data_dir: Path | None = None
    """Folder of the data sets; default: $GRADREG_DATA, or the user's cache folder."""
    json: Path | None = None
    """A file to write all figures to."""

    def __post_init__(self) -> None:
        check_fields(self)
        _at_least_one(self, "images", "shifted", "splits")

    def facts(self) -> dict[str, Any]:
        """All that figures depend on."""
        return {name: value for name, value in asdict(self).items() if name not in _PLACES}


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """How much larger certified radii are by the randomised limit than by Clopper & Pearson's (a few seconds)."""

    alpha: Between0And1 = 0.001
    json: Path | None = None
    """A file to write all figures to."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """Seconds and distances of a search in bfloat16 beside one as the model computes (ten minutes on a core)."""

    network: str = "cifar10-linf"
    """A run directory or a network of `gradreg networks`."""
    data: str = "cifar10"
    images: int = 100
    """The first test images that the network classifies correctly."""
    threats: str | Sequence[str] = "l2,linf"
    """Comma-separated: l2, linf."""
    rounds: int = 1
    """How often each search is timed, in turn; the best counts."""
    data_dir: Path | None = None
    """Folder of the data sets; default: $GRADREG_DATA, or the user's cache folder."""
    json: Path | None = None
    """A file to write all figures to."""

    def __post_init__(self) -> None:
        _at_least_one(self, "images", "rounds")
        _check_known("threats", _names(self.threats), THREATS)
        check_writable(self.json)

    @property
    def norms(self) -> tuple[ThreatName, ...]:
        """The threats by name, in the order they are measured."""
        return tuple(name for name in THREATS if name in _names(self.threats))

    def facts(self) -> dict[str, Any]:
        """What the figures depend on, and not where they are written to."""
        return {key: value for key, value in asdict(self).items() if key not in _PLACES}


@dataclass(frozen=True, kw_only=True)
class BandOptions:
    """How far outside of a radius images are left early: learned on some networks, judged on others by AutoAttack."""

    learn: str | Sequence[str] = f"{DIGITS},fashion-mnist"
    """Data sets of grey 28x28 images to learn on, comma-separated; five networks each."""
    judge: str = "fashion-mnist"
    """The data set whose test images are judged, with five other networks."""
    images: int = 200
    """Per network and threat, at most, to learn on: training images that no network was trained on."""
    judged: int = 500
    """Test images per network and threat; 0 only learns."""
    only: str | Sequence[str] = ()
    """Networks to judge, comma-separated; default: all five."""
    chunk: int = 100
    """Images that are judged together; an interruption loses at most these."""
    steps: int = 300
    """Of training, at least; on at most 20,000 images."""
    threats: str | Sequence[str] = "l2,linf"
    """Comma-separated: l2, linf."""
    seed: int = 0
    data_dir: Path | None = None
    """Folder of the data sets; default: $GRADREG_DATA, or the user's cache folder."""
    json: Path | None = None
    """A file to write all figures to."""
    work: Path | None = None
    """A folder that keeps what is finished: the same command continues from there. Default: nothing is kept."""

    def __post_init__(self) -> None:
        check_fields(self)
        _at_least_one(self, "images", "chunk", "steps")
        _check_known("threats", _names(self.threats), THREATS)
        check_writable(self.json)
        if not self.norms or not self.sources:
            raise ConfigError("learn and threats must each name at least one; got none.")

    @property
    def sources(self) -> tuple[str, ...]:
        """The data sets to learn on."""
        return _names(self.learn)

    def chosen(self, known: Iterable[str]) -> tuple[str, ...]:
        """The networks to judge, of those that are known."""
        _check_known("only", _names(self.only), known)
        return _names(self.only) or tuple(known)

    @property
    def norms(self) -> tuple[ThreatName, ...]:
        """The threats by name, in the order they are measured."""
        return tuple(name for name in THREATS if name in _names(self.threats))

    def facts(self) -> dict[str, Any]:
        """What the figures depend on, and not where they are written to."""
        return {key: value for key, value in asdict(self).items() if key not in _PLACES}


# Where something lies does not change what is measured.
_PLACES = ("data_dir", "json", "work")


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    parts = given.replace(" ", "").split(",") if isinstance(given, str) else given
    return tuple(filter(None, parts))


def _check_known(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ConfigError(f"{what} must be among {', '.join(known)}; got {', '.join(unknown)}.")


def check_writable(path: Path | None) -> None:
    """Refuse a file in a folder that is not there, before anything is measured."""
    if path is not None and not path.parent.is_dir():
        raise ConfigError(f"{path} cannot be written: there is no folder {path.parent}.")


def _at_least_one(options: object, *names: str) -> None:
    for name in names:
        value = cast(int, getattr(options, name))
        if value < 1:
            raise ConfigError(f"{name} must be at least 1; got {value}.")
