"""Models by name: built-in ones, those of timm and torchvision, and a user's own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
