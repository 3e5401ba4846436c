"""The public names. `gradreg.bounds` and `gradreg.report` are functions; their packages are imported from by name."""

from . import attacks as attacks
from . import data as data
from . import diagnosis as diagnosis
from . import evaluation as evaluation
from . import losses as losses
from . import models as models
from . import norms as norms
from . import objectives as objectives
from . import runs as runs
from . import smoothing as smoothing
from . import training as training
from .attacks import AttackResult as AttackResult
from .attacks import Pool as Pool
from .attacks import attack as attack
from .bounds import BoundsError as BoundsError
from .bounds import Regularity as Regularity
from .bounds import bounds as bounds
from .bounds import clever as clever
from .bounds import estimate_regularity as estimate_regularity
from .bounds import violations as violations
from .classifier import Classifier as Classifier
from .diagnosis import Flag as Flag
from .diagnosis import Verdict as Verdict
from .diagnosis import diagnose as diagnose
from .diagnosis import verdict as verdict
from .errors import ConfigError as ConfigError
from .errors import DataError as DataError
from .errors import GradregError as GradregError
from .errors import ModelError as ModelError
from .errors import PrecisionError as PrecisionError
from .evaluation import Evaluation as Evaluation
from .evaluation import evaluate as evaluate
from .inspection import Inspection as Inspection
from .inspection import inspect_image as inspect_image
from .models import build as build
from .norms import threat as threat
from .penalty import RegularizedLoss as RegularizedLoss
from .penalty import regularized_loss as regularized_loss
from .report import report as report
from .runs import load as load
from .smoothing import Certificates as Certificates
from .smoothing import certify as certify
from .training import fit as fit

__version__: str
