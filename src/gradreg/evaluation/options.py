"""What is examined and how thoroughly; refused before any work is done if it cannot mean anything."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import get_args

from gradreg.attacks.suite import ATTACKS, MINIMAL
from gradreg.bounds.estimate import Method
from gradreg.errors import ConfigError
from gradreg.norms import THREATS, ThreatName
from gradreg.smoothing.certificates import Settings as SmoothingSettings

# Radii at which the smoothed classifier is certified.
RADII = tuple(step / 4 for step in range(1, 9))

# AutoAttack's third version is for randomised models, which are refused.
AUTOATTACK_VERSIONS = ("standard", "plus")


@dataclass(frozen=True)
class Options:
    """The settings of an evaluation, checked."""

    threats: tuple[ThreatName, ...]
    attacks: str | tuple[str, ...] = "standard"
    regularity: Method = "ascent"
    smoothing: tuple[float, ...] = ()
    alpha: float = 0.001
    samples: int = 100_000
    radii: tuple[float, ...] = RADII
    seed: int = 0
    batch_size: int = 100
    diagnosis: bool = True
    autoattack: Mapping[ThreatName, tuple[float, ...]] = field(default_factory=dict)
    """Radii of each threat at which the reference AutoAttack is asked too."""
    autoattack_version: str = "standard"

    def __post_init__(self) -> None:
        unknown = [name for name in self.threats if name not in THREATS]
        if unknown or not self.threats or len(set(self.threats)) < len(self.threats):
            raise ConfigError(
                f"threat is {list(self.threats)}, but it is one or more of {', '.join(THREATS)}, each once."
            )
        names = [self.attacks] if isinstance(self.attacks, str) else list(self.attacks)
        known = MINIMAL if isinstance(self.attacks, str) else ATTACKS
        if not names or any(name not in known for name in names):
            raise ConfigError(
                f"attacks is {self.attacks!r}, but it is a suite ({', '.join(MINIMAL)}) or a list of attacks "
                f"({', '.join(ATTACKS)})."
            )
        if self.regularity not in get_args(Method):
            raise ConfigError(f"regularity is {self.regularity!r}, but it is one of {', '.join(get_args(Method))}.")
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}, but it is at least 1.")
        if len(set(self.smoothing)) < len(self.smoothing):
            raise ConfigError(f"smoothing is {list(self.smoothing)}, but each σ is certified once.")
        for sigma in self.smoothing:
            SmoothingSettings(sigma, self.alpha, self.samples, 1, self.radii, "sequential", 1, self.seed, False)
        self._check_autoattack()

    def _check_autoattack(self) -> None:
        others = [threat for threat in self.autoattack if threat not in self.threats]
        if others:
            raise ConfigError(
                f"autoattack is asked for {others[0]!r}, but the evaluation is of {' and '.join(self.threats)}: "
                f"examine {others[0]} too (--threat), or leave it out."
            )
        for threat, radii in self.autoattack.items():
            # As they are named in the table.
            distinct = {f"{radius:g}" for radius in radii}
            if len(distinct) < len(radii) or not all(0 < radius < math.inf for radius in radii):
                raise ConfigError(
                    f"autoattack is to confirm {threat} at {list(radii)}, but radii are above 0 and finite, each once."
                )
        if self.autoattack_version not in AUTOATTACK_VERSIONS:
            raise ConfigError(
                f"autoattack_version is {self.autoattack_version!r}, but it is one of {', '.join(AUTOATTACK_VERSIONS)}."
            )

    @property
    def attacks_name(self) -> str:
        """The suite, or the attacks with commas between."""
        return self.attacks if isinstance(self.attacks, str) else ",".join(self.attacks)

    def key(self) -> str:
        """What every stage depends on; a threat, a σ or a confirmation more leaves finished stages as they are."""
        return repr((self.attacks_name, self.regularity, self.seed))

    def smoothing_key(self, sigma: float) -> str:
        """What certificates depend on besides."""
        return blake2b(repr((sigma, self.alpha, self.samples, self.radii)).encode(), digest_size=4).hexdigest()


def threats_from(threat: ThreatName | str | Sequence[str]) -> tuple[ThreatName, ...]:
    """Threats by name, alone, with commas between, or as a sequence; whether they exist is seen later."""
    names = threat.split(",") if isinstance(threat, str) else threat
    return tuple(name.strip() for name in names)  # type: ignore[misc]


def radii_from(autoattack: Mapping[ThreatName, Sequence[float]] | None) -> dict[ThreatName, tuple[float, ...]]:
    """The radii to confirm by threat; whether they can be is seen later."""
    try:
        return {threat: tuple(float(radius) for radius in radii) for threat, radii in (autoattack or {}).items()}
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            f"autoattack is {autoattack!r}, but it gives each threat a list of radii, as in {{'linf': [8 / 255]}}."
        ) from None
