"""gradreg: adversarially robust image classifiers by input gradient regularization, and how robust they really are.

The public names stand in `__init__.pyi`, here and in every package below. They are imported when first used, so that
`import gradreg` and `gradreg --help` answer at once.
"""

import copyreg as _copyreg
import sys as _sys
from importlib import import_module as _import_module

import lazy_loader as _lazy_loader

__getattr__, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)

# lazy_loader gives the package a class of its own, which pickles refuse. Functions that use `gradreg` are sent to other
# processes by cloudpickle (Ray, Dask, submitit), so it is pickled by its name, as any other module.
_copyreg.pickle(type(_sys.modules[__name__]), lambda module: (_import_module, (module.__name__,)))
