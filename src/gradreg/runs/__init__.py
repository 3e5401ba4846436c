"""Runs: their directories and checkpoints, recipes and settings, trained networks, and models by name."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
