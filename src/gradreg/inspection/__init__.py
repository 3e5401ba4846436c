"""One image, closely: its nearest adversarial image by each attack, its bounds and its certificate."""

from gradreg.inspection.figure import draw
from gradreg.inspection.image import Inspection, Nearest, inspect_image

__all__ = ["Inspection", "Nearest", "draw", "inspect_image"]
