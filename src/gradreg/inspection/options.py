"""What an inspection looks at."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradreg.attacks.suite import ATTACKS
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count, Natural, Positive, check_names
from gradreg.errors import ConfigError
from gradreg.norms import Threat, ThreatName
from gradreg.norms import threat as named_threat
from gradreg.smoothing.options import CertifyOptions


@dataclass(frozen=True, kw_only=True)
class InspectionOptions:
    """Options of an inspection, the same in Python and on the command line."""

    threat: ThreatName | Threat = "l2"
    """The threat: linf, l2 or l1."""
    topk: Count = 1
    """An image is misclassified if its label is not among the k largest logits."""
    attacks: str | Sequence[str] | None = None
    """Comma-separated attacks, each run by itself; default: every attack on the threat."""
    sigma: Positive = 0.25
    """Noise of the smoothed classifier that is certified."""
    samples: Count = 10_000
    """Noisy images for the certificate, at most."""
    seed: Natural = 0
    """Of the random numbers that attacks draw."""

    def __post_init__(self) -> None:
        check_fields(self)
        CertifyOptions(sigma=self.sigma, n=self.samples, topk=self.topk, seed=self.seed)
        known = self._known
        wrong = [name for name in self.attack_names if name not in known]
        if wrong or not self.attack_names:
            raise ConfigError(
                f"attacks must be among {', '.join(known)} for {self.norm.name}; got {', '.join(wrong) or 'none'}."
            )

    @property
    def norm(self) -> Threat:
        """The threat itself."""
        return named_threat(self.threat)

    @property
    def attack_names(self) -> tuple[str, ...]:
        """The attacks that are run."""
        if self.attacks is None:
            return self._known
        given = self.attacks.split(",") if isinstance(self.attacks, str) else self.attacks
        return tuple(name.strip() for name in check_names("attacks", given))

    @property
    def _known(self) -> tuple[str, ...]:
        return tuple(name for name, one in ATTACKS.items() if one.claims and one.supports(self.norm))
