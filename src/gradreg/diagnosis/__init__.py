"""Is this robustness real? Tests for masked gradients and misused models, as data."""

from gradreg.diagnosis.diagnose import diagnose
from gradreg.diagnosis.flags import Flag, Verdict, is_proven_bug, verdict

__all__ = ["Flag", "Verdict", "diagnose", "is_proven_bug", "verdict"]
