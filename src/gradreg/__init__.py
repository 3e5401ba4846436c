"""gradreg: adversarially robust image classifiers by input gradient regularization, and how robust they really are.

Names are imported when first used, so that `import gradreg` and `gradreg --help` answer at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradreg.classifier import Classifier as Classifier
    from gradreg.errors import ConfigError as ConfigError
    from gradreg.errors import DataError as DataError
    from gradreg.errors import GradregError as GradregError
    from gradreg.errors import ModelError as ModelError
    from gradreg.errors import PrecisionError as PrecisionError
    from gradreg.models import build as build
    from gradreg.norms import threat as threat
    from gradreg.penalty import RegularizedLoss as RegularizedLoss
    from gradreg.penalty import regularized_loss as regularized_loss

__version__ = "0.1.0"

_HOME = {
    "Classifier": "gradreg.classifier",
    "ConfigError": "gradreg.errors",
    "DataError": "gradreg.errors",
    "GradregError": "gradreg.errors",
    "ModelError": "gradreg.errors",
    "PrecisionError": "gradreg.errors",
    "RegularizedLoss": "gradreg.penalty",
    "build": "gradreg.models",
    "regularized_loss": "gradreg.penalty",
    "threat": "gradreg.norms",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'gradreg' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
