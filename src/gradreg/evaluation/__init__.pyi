from .files import load as load
from .files import save as save
from .options import EvaluationOptions as EvaluationOptions
from .record import Evaluation as Evaluation
from .runner import evaluate as evaluate
