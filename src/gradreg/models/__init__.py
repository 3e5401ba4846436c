from gradreg.models.activations import activation
from gradreg.models.normalize import Normalize
from gradreg.models.registry import build, names

__all__ = ["Normalize", "activation", "build", "names"]
