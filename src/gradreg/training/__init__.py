"""Training: a recipe or a Python call in, a run directory out."""

from gradreg.training.config import Config, Phase, Probe, Settings
from gradreg.training.errors import Interrupted, RunError, TrainingFailed
from gradreg.training.fitting import Fitted, fit, train
from gradreg.training.loading import load

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
    "load",
    "train",
]
