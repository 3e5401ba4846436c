"""What is diagnosed and how thoroughly."""

from dataclasses import dataclass

from torch import Tensor

from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import AtMost, Count, Natural, Positive
from gradreg.norms import Threat, ThreatName, usual, usual_radii_of
from gradreg.norms import threat as named_threat


@dataclass(frozen=True, kw_only=True)
class DiagnosisOptions:
    """Options of a diagnosis, the same in Python and on the command line."""

    threat: ThreatName | Threat = "linf"
    """The threat: linf, l2 or l1."""
    eps: Positive | None = None
    """The radius of interest; default: the data set's, else 8/255 (linf), 0.5 (l2) or 12 (l1)."""
    topk: Count = 1
    """An image is misclassified if its label is not among the k largest logits."""
    images: AtMost = 128
    """Images to test, the first ones. Masking is large or absent, so this many show it."""
    seed: Natural = 0
    """Of the random numbers that attacks draw."""
    batch_size: AtMost = 256
    """Images per forward."""

    def __post_init__(self) -> None:
        check_fields(self)
        named_threat(self.threat)

    @property
    def norm(self) -> Threat:
        """The threat itself."""
        return named_threat(self.threat)

    def radius_on(self, x: Tensor) -> float:
        """The radius of interest on such images."""
        return usual(usual_radii_of(self.norm, x)) if self.eps is None else self.eps
