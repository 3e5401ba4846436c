"""gradreg: adversarially robust image classifiers by input gradient regularization, and how robust they really are.

Names are imported when first used, so that `import gradreg` and `gradreg --help` answer at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradreg.attacks import AttackResult as AttackResult
    from gradreg.attacks import Pool as Pool
    from gradreg.attacks import attack as attack
    from gradreg.bounds import BoundsError as BoundsError
    from gradreg.bounds import Regularity as Regularity
    from gradreg.bounds import bounds as bounds
    from gradreg.bounds import clever as clever
    from gradreg.bounds import estimate_regularity as estimate_regularity
    from gradreg.bounds import violations as violations
    from gradreg.classifier import Classifier as Classifier
    from gradreg.diagnosis import Flag as Flag
    from gradreg.diagnosis import Verdict as Verdict
    from gradreg.diagnosis import diagnose as diagnose
    from gradreg.diagnosis import verdict as verdict
    from gradreg.errors import ConfigError as ConfigError
    from gradreg.errors import DataError as DataError
    from gradreg.errors import GradregError as GradregError
    from gradreg.errors import ModelError as ModelError
    from gradreg.errors import PrecisionError as PrecisionError
    from gradreg.evaluation import Evaluation as Evaluation
    from gradreg.evaluation import evaluate as evaluate
    from gradreg.inspection import Inspection as Inspection
    from gradreg.inspection import inspect_image as inspect_image
    from gradreg.models import build as build
    from gradreg.norms import threat as threat
    from gradreg.penalty import RegularizedLoss as RegularizedLoss
    from gradreg.penalty import regularized_loss as regularized_loss
    from gradreg.report import report as report
    from gradreg.smoothing import Certificates as Certificates
    from gradreg.smoothing import certify as certify
    from gradreg.training import fit as fit
    from gradreg.training import load as load

__version__ = "0.1.0"

_PUBLIC = {
    "gradreg.attacks": "AttackResult Pool attack",
    "gradreg.bounds": "BoundsError Regularity bounds clever estimate_regularity violations",
    "gradreg.classifier": "Classifier",
    "gradreg.diagnosis": "Flag Verdict diagnose verdict",
    "gradreg.errors": "ConfigError DataError GradregError ModelError PrecisionError",
    "gradreg.evaluation": "Evaluation evaluate",
    "gradreg.inspection": "Inspection inspect_image",
    "gradreg.models": "build",
    "gradreg.norms": "threat",
    "gradreg.penalty": "RegularizedLoss regularized_loss",
    "gradreg.report": "report",
    "gradreg.smoothing": "Certificates certify",
    "gradreg.training": "fit load",
}
_ROOMS = (
    "attacks",
    "data",
    "diagnosis",
    "evaluation",
    "losses",
    "models",
    "networks",
    "norms",
    "objectives",
    "recipes",
    "smoothing",
    "training",
)
_HOME = {name: module for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"gradreg.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'gradreg' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
