from .activations import activation as activation
from .normalize import Normalize as Normalize
from .registry import build as build
from .registry import names as names
