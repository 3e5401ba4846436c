"""A threat: the norm that measures an attacker's perturbation, and what its geometry gives.

`threat("linf")` names the norm of the *attack*; penalties and bounds use its dual, so nobody has to remember that l∞
goes with l1. A norm of one's own is a subclass of `Threat`, and works wherever a name does.
"""

from gradreg.norms.base import Radius, Threat, ThreatName, per_image
from gradreg.norms.consistency import check, checked
from gradreg.norms.identity import probe
from gradreg.norms.lp import L1, L2, Linf
from gradreg.norms.mahalanobis import Mahalanobis
from gradreg.norms.named import THREATS, threat
from gradreg.norms.pixelwise import Pixelwise
from gradreg.norms.radii import reach_of, robust_at, usual, usual_radii_of
from gradreg.norms.weighted import Weighted

__all__ = [
    "L1",
    "L2",
    "THREATS",
    "Linf",
    "Mahalanobis",
    "Pixelwise",
    "Radius",
    "Threat",
    "ThreatName",
    "Weighted",
    "check",
    "checked",
    "per_image",
    "probe",
    "reach_of",
    "robust_at",
    "threat",
    "usual",
    "usual_radii_of",
]
