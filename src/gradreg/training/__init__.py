"""Training: a recipe or a Python call in, a run directory out."""

from gradreg.errors import Interrupted, RunError, TrainingFailed
from gradreg.runs.settings import Config, Phase, Probe, Settings
from gradreg.training.fitting import Fitted, fit, train

__all__ = [
    "Config",
    "Fitted",
    "Interrupted",
    "Phase",
    "Probe",
    "RunError",
    "Settings",
    "TrainingFailed",
    "fit",
    "train",
]
