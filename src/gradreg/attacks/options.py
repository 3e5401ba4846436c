"""What every attack takes, alone or in a suite."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from gradreg.attacks.search import LEAST_BUDGET
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import AtMost, Count, Natural, Range, check_integer, check_numbers
from gradreg.norms import Threat, ThreatName
from gradreg.norms import threat as named_threat

_Budget = Annotated[int, Range(least=LEAST_BUDGET, usual="propagations per image, for one query and its checks")]
# Of a budget, so much at most is kept back to round what was found: two forwards for each length that is tried.
_TO_ROUND, _PART_TO_ROUND, _LEAST_TO_ROUND = 24, 4, 2
# Low precision takes two more forwards at least: it is compared with the model's, and a claim is asked about.
_TO_COMPARE = 2
_Bits = Annotated[int, Range(least=1, most=16, usual="bits per pixel; 8 for usual images")]


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search for adversarial images, whichever attacks make it."""

    threat: ThreatName | Threat = "l2"
    """The norm that is searched in: linf, l2, l1, or a norm of one's own."""
    eps: float | Sequence[float] | None = None
    """Radii to search within, in pixel units; default: the nearest adversarial image."""
    topk: Count = 1
    """An image is misclassified if its label is not among the k largest logits."""
    seed: Natural = 0
    """Of random starts and directions."""
    budget: _Budget | None = None
    """Forwards and backwards per image, at most."""
    batch_size: AtMost = 256
    """Images per forward; results do not depend on it."""
    quantize: _Bits | None = None
    """Bits per pixel that adversarial images are rounded to."""
    precision: Literal["model", "bf16"] = "model"
    """Search as the model computes, or in bfloat16; then every success is asked again as the model computes."""

    def __post_init__(self) -> None:
        check_fields(self)
        named_threat(self.threat)
        radii_of(self.eps)
        if self.budget is not None:
            least = LEAST_BUDGET + (0 if self.precision == "model" else _TO_COMPARE)
            least += 0 if self.quantize is None else _LEAST_TO_ROUND
            check_integer("budget", self.budget, least=least, usual="propagations per image, with these options")

    @property
    def search_budget(self) -> int | None:
        """Propagations per image for the search itself: the last one verifies, and some round to the grid."""
        if self.budget is None:
            return None
        rounding = max(_LEAST_TO_ROUND, min(_TO_ROUND, self.budget // _PART_TO_ROUND))
        return self.budget - 1 - (0 if self.quantize is None else rounding)

    @property
    def norm(self) -> Threat:
        """The threat itself."""
        return named_threat(self.threat)

    @property
    def radii(self) -> tuple[float, ...] | None:
        """The radii that are aimed at, ascending; None for the smallest distance."""
        return radii_of(self.eps)


SHARED = tuple(field.name for field in fields(SearchOptions))


def radii_of(eps: float | Sequence[float] | None) -> tuple[float, ...] | None:
    """The radii, ascending and each once."""
    if eps is None:
        return None
    return tuple(sorted(set(check_numbers("eps", eps, least=0, usual="a radius in pixel units"))))
