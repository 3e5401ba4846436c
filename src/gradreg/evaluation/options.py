"""What is evaluated and how thoroughly. Refused before any work is done if it cannot mean anything."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

from gradreg.attacks.suite import ATTACKS, SUITES, choices
from gradreg.bounds.estimation import Method
from gradreg.bounds.extremes import MIN_BLOCKS
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import AtMost, Between0And1, Count, Natural, check_names, check_number, check_numbers, shown
from gradreg.config.fractions import fraction
from gradreg.errors import ConfigError
from gradreg.norms import THREATS, Threat
from gradreg.norms import threat as named
from gradreg.smoothing.options import CertifyOptions

# Images per block of an extreme value fit, at the least, and that many blocks.
FEWEST_IN_BLOCK = 8
FEWEST_CALIBRATED = FEWEST_IN_BLOCK * MIN_BLOCKS
# AutoAttack's third version is for randomised models, which are refused.
_AutoAttackVersion = Literal["standard", "plus"]

Numbers = str | Sequence[float]
"""Numbers, or a text with commas between them: "0.25,0.5"."""
Names = str | Sequence[str]
"""Names, or a text with commas between them: "fmn,pgd"."""
Threats = str | Threat | Sequence[str | Threat]
"""Names, or a text with commas between them: "l2,linf"; or norms of one's own, alone or among the names."""
Radii = str | Mapping[str, Sequence[float]]
"""Radii by threat, or a text: "linf=8/255,l2=0.5"."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Options of an evaluation, the same in Python and on the command line."""

    threat: Threats = ("l2", "linf")
    """Threats to evaluate, comma-separated: l2, linf, l1."""
    images: AtMost = 1000
    """Random test images to evaluate on; all of them if there are fewer."""
    attacks: Names = "standard"
    """A suite (standard, paper or quick), or comma-separated attacks."""
    topk: Count = 1
    """An image is misclassified if its label is not among the k largest logits."""
    regularity: Method = "local"
    """How L and ω of the bounds are estimated: around each image, or ("ascent", "paper") on training images."""
    calibration_images: AtMost = 640
    """Training images that "ascent" and "paper" estimate them on; at least 160 for a useful fit."""
    calibration_alpha: Between0And1 = 0.05
    """Fraction of images on which calibrated bounds may fail against the attacks."""
    smoothing: Numbers | None = None
    """Noise levels σ to certify with, as 0.25,0.5; default: none."""
    alpha: Between0And1 = 0.001
    """Probability that a certificate is wrong."""
    samples: Count = 100_000
    """Noisy images per certificate, at most."""
    radii: Numbers = tuple(step / 4 for step in range(1, 9))
    """l2 radii that certificates are tested at, ascending."""
    diagnosis: bool = True
    """Test for gradient masking."""
    autoattack: Radii | None = None
    """Radii to confirm with the reference AutoAttack, as linf=8/255,l2=0.5: needs pyautoattack, and much time."""
    autoattack_version: _AutoAttackVersion = "standard"
    """Which set of attacks the reference runs."""
    seed: Natural = 0
    """Of the choice of images, the attacks and the estimates."""
    batch_size: AtMost = 100
    """Images per forward; results do not depend on it."""

    def __post_init__(self) -> None:
        check_fields(self)
        threats = self.threats
        if not threats or len(set(threats)) < len(threats):
            raise ConfigError(f"threat must be one or more of {', '.join(THREATS)}, each once; got {list(threats)}.")
        chosen = self.attacks_chosen
        if not isinstance(chosen, str) and (not chosen or any(name not in ATTACKS for name in chosen)):
            raise ConfigError(f"attacks must be {choices()}; got {self.attacks!r}.")
        for norm in self.norms:
            for name in () if isinstance(chosen, str) else chosen:
                ATTACKS[name].check(norm)
        if self.regularity != "local" and self.calibration_images < FEWEST_CALIBRATED:
            raise ConfigError(
                f"calibration_images must be at least {FEWEST_CALIBRATED} for a fit with regularity="
                f"{self.regularity!r}; got {self.calibration_images}."
            )
        if len(set(self.sigmas)) < len(self.sigmas):
            raise ConfigError(f"smoothing must name each σ once; got {list(self.sigmas)}.")
        # Asked for in any case, so that bad radii are not passed over where no σ is given.
        radii = self.certified_radii
        for sigma in self.sigmas:
            CertifyOptions(sigma=sigma, alpha=self.alpha, n=self.samples, radii=radii, topk=self.topk, seed=self.seed)
        self._check_confirmations()

    def _check_confirmations(self) -> None:
        for threat, radii in self.confirmations.items():
            if threat not in self.threats:
                raise ConfigError(
                    f"autoattack must confirm threats that are evaluated ({', '.join(self.threats)}); got {threat!r}: "
                    "add it to threat, or leave it out."
                )
            if threat not in THREATS:
                raise ConfigError(f"AutoAttack is for {', '.join(THREATS)}; got {threat}. Leave it out of autoattack.")
            if self.topk > 1:
                raise ConfigError(f"AutoAttack is about top-1; got topk={self.topk}. Leave autoattack out.")
            # Distinct as the table names them.
            distinct = {f"{radius:g}" for radius in radii}
            if len(distinct) < len(radii):
                raise ConfigError(f"autoattack must name each radius once; got {threat}: {list(radii)}.")

    @property
    def norms(self) -> tuple[Threat, ...]:
        """The norms that are evaluated."""
        given: Any = [self.threat] if isinstance(self.threat, Threat) else self.threat
        parts = given.split(",") if isinstance(given, str) else given
        if not isinstance(parts, Iterable) or getattr(parts, "ndim", 1) == 0:
            raise ConfigError(f"threat must be a list of names and norms; got {shown(parts)}.")
        return tuple(named(part.strip() if isinstance(part, str) else part) for part in parts)  # type: ignore[arg-type]

    @property
    def threats(self) -> tuple[str, ...]:
        """The norms by name."""
        return tuple(norm.name for norm in self.norms)

    @property
    def attacks_chosen(self) -> str | tuple[str, ...]:
        """A suite by name, or attacks by theirs."""
        names = _names("attacks", self.attacks)
        return names[0] if len(names) == 1 and names[0] in SUITES else names

    @property
    def attacks_name(self) -> str:
        """The suite, or the attacks with commas between."""
        return ",".join(_names("attacks", self.attacks))

    @property
    def sigmas(self) -> tuple[float, ...]:
        """Noise levels of the smoothed classifiers."""
        return _numbers("smoothing", () if self.smoothing is None else self.smoothing, above=0)

    @property
    def certified_radii(self) -> tuple[float, ...]:
        """Where certificates are tested."""
        return check_numbers("radii", _numbers("radii", self.radii, least=0), ascending=True)

    @property
    def confirmations(self) -> dict[str, tuple[float, ...]]:
        """Radii of each threat at which the reference AutoAttack is run too."""
        given = _radii_by_threat(self.autoattack) if isinstance(self.autoattack, str) else self.autoattack
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"autoattack must give each threat a list of radii, as {{'linf': [8 / 255]}} or linf=8/255,l2=0.5; got "
                f"{shown(self.autoattack)}."
            )
        return {threat: check_numbers("autoattack radii", radii, above=0) for threat, radii in given.items()}

    def key(self) -> str:
        """What every stage depends on; one more threat, σ or confirmation leaves finished stages as they are."""
        return repr((self.attacks_name, self.regularity, self.calibration_alpha, self.seed, self.topk))

    def smoothing_key(self, sigma: float) -> str:
        """What certificates depend on besides."""
        sigma = check_number("sigma", sigma, above=0)
        settings = repr((sigma, self.alpha, self.samples, self.certified_radii, self.topk, "frequency"))
        return blake2b(settings.encode(), digest_size=4).hexdigest()


def _names(option: str, given: Names) -> tuple[str, ...]:
    return tuple(name.strip() for name in check_names(option, given.split(",") if isinstance(given, str) else given))


def _numbers(name: str, given: Numbers, **limits: Any) -> tuple[float, ...]:
    """The numbers, each within the limits; there may be none."""
    if not isinstance(given, str):
        empty = isinstance(given, Sequence) and len(given) == 0
        return () if empty else check_numbers(name, given, **limits)
    found = [fraction(part) for part in given.split(",") if part.strip()]
    if None in found:
        raise ConfigError(f"{name} must be comma-separated numbers such as 0.25,0.5; got {given!r}.")
    return tuple(check_number(name, number, **limits) for number in found)


def _radii_by_threat(text: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for part in filter(str.strip, text.split(",")):
        threat, _, radius = part.partition("=")
        value = fraction(radius)
        if value is None:
            raise ConfigError(f"autoattack must be threats with radii such as linf=8/255,l2=0.5; got {part.strip()!r}.")
        found.setdefault(threat.strip(), []).append(value)
    return found
