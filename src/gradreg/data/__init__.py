"""Images and labels: where they come from, and the order and shape in which they reach a model."""

from gradreg.data.batches import Batches, FolderBatches
from gradreg.data.folder import ImageFolder
from gradreg.data.images import DataSet, Images
from gradreg.data.rectangles import RectangularBatches
from gradreg.data.source import batches, load, names

__all__ = [
    "Batches",
    "DataSet",
    "FolderBatches",
    "ImageFolder",
    "Images",
    "RectangularBatches",
    "batches",
    "load",
    "names",
]
