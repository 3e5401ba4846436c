"""The norms that have a short name."""

from gradreg.checks.scalars import shown
from gradreg.errors import ConfigError, did_you_mean
from gradreg.norms.base import Threat, ThreatName
from gradreg.norms.lp import L1, L2, Linf

# In the order in which reports show them.
THREATS: dict[str, Threat] = {"linf": Linf(), "l2": L2(), "l1": L1()}


def threat(name: ThreatName | Threat) -> Threat:
    """The threat of that name; a Threat is returned unchanged."""
    if isinstance(name, Threat):
        return name
    if not isinstance(name, str) or name not in THREATS:
        raise ConfigError(
            f"threat must be one of {', '.join(THREATS)}, or a gradreg.norms.Threat; got {shown(name)}"
            f"{did_you_mean(name, THREATS)}."
        )
    return THREATS[name]
