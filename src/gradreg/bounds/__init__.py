"""Lower bounds on adversarial distance: the paper's L- and ω-bound, curvature, CLEVER, and sound ones.

`gradreg.bounds` is this package and, called, the function `bounds` in it.
"""

import sys
from types import ModuleType

from gradreg.bounds.clever import Clever as Clever
from gradreg.bounds.clever import clever as clever
from gradreg.bounds.curvature import Curvature as Curvature
from gradreg.bounds.curvature import curvature as curvature
from gradreg.bounds.curvature import curvature_radius as curvature_radius
from gradreg.bounds.errors import BoundsError as BoundsError
from gradreg.bounds.estimate import estimate_regularity as estimate_regularity
from gradreg.bounds.extremes import GEV as GEV
from gradreg.bounds.extremes import ExtremeValue as ExtremeValue
from gradreg.bounds.extremes import block_maxima as block_maxima
from gradreg.bounds.extremes import extreme_value as extreme_value
from gradreg.bounds.extremes import fit_lmoments as fit_lmoments
from gradreg.bounds.lanczos import Eigenvalues as Eigenvalues
from gradreg.bounds.lanczos import largest_eigenvalue as largest_eigenvalue
from gradreg.bounds.regularity import Regularity as Regularity
from gradreg.bounds.solve import Bound as Bound
from gradreg.bounds.solve import bounds as bounds
from gradreg.bounds.solve import largest_radius as largest_radius
from gradreg.bounds.sound import sound_radius as sound_radius
from gradreg.bounds.validity import Violations as Violations
from gradreg.bounds.validity import violations as violations


class _Bounds(ModuleType):
    # Importing the package makes `gradreg.bounds` its name, which would hide the function of that name from users.
    __call__ = staticmethod(bounds)


sys.modules[__name__].__class__ = _Bounds
