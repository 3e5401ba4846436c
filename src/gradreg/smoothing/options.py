"""How certificates are made. Refused before any work where n samples cannot show even the smallest radius."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import AtMost, Count, Natural, check_numbers
from gradreg.smoothing.certificates import Alpha, Method, Samples, Settings, Sigma
from gradreg.smoothing.rules import check_samples

_SELECTION = {"sequential": 32, "cohen": 100}


@dataclass(frozen=True, kw_only=True)
class CertifyOptions:
    """Options of `certify`."""

    sigma: Sigma
    """Standard deviation of the noise, in pixel units."""
    alpha: Alpha = 0.001
    """Probability that a certificate is wrong."""
    n: Samples = 100_000
    """Noisy images per certificate, at most."""
    n0: Count | None = None
    """Noisy images that pick the class; default: 32, or 100 by Cohen's procedure."""
    radii: Sequence[float] | None = None
    """l2 radii to test, ascending; default: multiples of σ/16, or any radius by Cohen's procedure."""
    method: Method = "sequential"
    """The sequential test, or "cohen"."""
    topk: Count = 1
    """Certify that the class stays among the k that noisy images are given most often."""
    randomized: bool = False
    """By Cohen's procedure: the limit that fails with probability α exactly."""
    seed: Natural = 0
    """Of the noise."""
    batch_size: AtMost = 512
    """Noisy images per forward; results do not depend on it."""

    def __post_init__(self) -> None:
        check_fields(self)
        settings = self.settings()
        check_samples(settings.sigma, settings.alpha, settings.n, settings.topk, settings.radii, settings.method)

    def settings(self, given_labels: bool = False) -> Settings:
        """What a certificate depends on, as its file keeps it."""
        same = {field.name: getattr(self, field.name) for field in fields(Settings) if hasattr(self, field.name)}
        radii = None if self.radii is None else check_numbers("radii", self.radii, ascending=True, least=0)
        n0 = _SELECTION[self.method] if self.n0 is None else self.n0
        return Settings(**{**same, "radii": radii, "n0": n0, "given_labels": given_labels})
