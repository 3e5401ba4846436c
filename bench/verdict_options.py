"""What `python -m bench verdict` judges, and how."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from gradreg.attacks import AttackOptions
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count, Natural
from gradreg.config.fractions import fraction
from gradreg.errors import ConfigError
from gradreg.norms import ThreatName


@dataclass(frozen=True, kw_only=True)
class VerdictOptions:
    """Which images of a whole test set withstand `standard` attacks of one radius (minutes per network on a core)."""

    runs: Positional[tuple[Path, ...]]
    """Run directories of `gradreg train`."""
    out: Path
    """The folder for a record per network."""
    threat: ThreatName = "linf"
    eps: str = "8/255"
    split: Literal["test", "held-out"] = "test"
    """Which images: those that figures are of, or those that a run kept for choices."""
    images: Count = 10_000
    """The first so many of them."""
    precision: Literal["model", "bf16"] = "model"
    chunk: Count = 500
    """Images that are attacked, and kept in `work`, at a time."""
    seed: Natural = 0
    threads: Count = 1
    work: Path | None = None
    """A folder that keeps what is finished."""
    data_dir: Path | None = None
    """Folder of the data sets; default: $GRADREG_DATA, or the user's cache folder."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.runs:
            raise ConfigError("Pass one run directory of `gradreg train` or more.")
        self.search  # noqa: B018 (it refuses what cannot be searched with)

    @property
    def radius(self) -> float:
        """ε as a number."""
        found = fraction(self.eps)
        if found is None or not found > 0:
            raise ConfigError(f"eps must be a number above 0, as 8/255; got {self.eps!r}.")
        return found

    @property
    def search(self) -> AttackOptions:
        """How each network is attacked."""
        return AttackOptions(threat=self.threat, eps=self.radius, precision=self.precision, seed=self.seed)

    def facts(self) -> dict[str, Any]:
        """What the figures depend on, and not where they are written to."""
        return {
            key: value
            for key, value in asdict(self).items()
            if key not in ("runs", "out", "work", "data_dir", "threads")
        }
