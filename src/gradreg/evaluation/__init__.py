"""Evaluation: a model and test images in, one record of all that was found out."""

from gradreg.evaluation.files import load, save
from gradreg.evaluation.record import Evaluation
from gradreg.evaluation.runner import evaluate

__all__ = ["Evaluation", "evaluate", "load", "save"]
