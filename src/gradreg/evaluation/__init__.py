"""Evaluation: a model and test images in, one record of all that was found out."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
