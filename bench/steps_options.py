"""What `python -m bench steps` times, and how often."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from bench.options import check_writable
from gradreg.checks.fields import check_fields
from gradreg.checks.scalars import Count
from gradreg.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class StepsOptions:
    """How long a training step takes, side by side for all recipes (a minute per recipe on an idle machine)."""

    records: Positional[tuple[Path, ...]]
    """Records of `python -m bench verdict`: their recipes are timed, each one once."""
    json: Path | None = None
    """A file to write the figures to."""
    rounds: Count = 12
    """How often each step is timed, in turn with all the others; the best counts."""
    threads: Count = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.records:
            raise ConfigError("records must name at least one file of `python -m bench verdict`; got none.")
        check_writable(self.json)

    def facts(self) -> dict[str, Any]:
        """What the figures depend on."""
        return {"rounds": self.rounds, "threads": self.threads}
