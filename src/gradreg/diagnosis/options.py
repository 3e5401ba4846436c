"""What is diagnosed and how thoroughly."""

from dataclasses import dataclass

from gradreg.config.options import check_types
from gradreg.errors import ConfigError
from gradreg.norms import Threat, ThreatName
from gradreg.norms import threat as named_threat


@dataclass(frozen=True, kw_only=True)
class DiagnosisOptions:
    """Options of a diagnosis, the same in Python and on the command line."""

    threat: ThreatName | Threat = "linf"
    """The threat: linf, l2 or l1."""
    eps: float | None = None
    """The radius of interest; default: 8/255 (linf), 0.5 (l2) or 12 (l1)."""
    topk: int = 1
    """An image is misclassified if its label is not among the k largest logits."""
    images: int = 128
    """Images to test, the first ones. Masking is large or absent, so this many show it."""
    seed: int = 0
    batch_size: int = 256
    """Images per forward."""

    def __post_init__(self) -> None:
        check_types(self)
        named_threat(self.threat)
        for name in ("topk", "images", "batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1; got {getattr(self, name)}.")
        if self.eps is not None and not self.eps > 0:
            raise ConfigError(f"eps must be above 0; got {self.eps}.")

    @property
    def norm(self) -> Threat:
        """The threat itself."""
        return named_threat(self.threat)

    @property
    def radius(self) -> float:
        """The radius of interest."""
        return self.norm.usual_radius if self.eps is None else float(self.eps)
