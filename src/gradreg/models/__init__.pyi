from .activations import activation as activation
from .normalize import Normalize as Normalize
from .registry import build as build
from .registry import names as names
from .swaps import kinks as kinks
from .swaps import swap_activations as swap_activations
from .swaps import swap_pooling as swap_pooling
