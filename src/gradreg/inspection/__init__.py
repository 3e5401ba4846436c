"""One image, closely: its nearest adversarial image by each attack, its bounds and its certificate."""

from gradreg.inspection.figure import draw
from gradreg.inspection.image import inspect_image
from gradreg.inspection.record import Inspection, Nearest

__all__ = ["Inspection", "Nearest", "draw", "inspect_image"]
