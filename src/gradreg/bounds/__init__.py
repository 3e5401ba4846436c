"""Lower bounds on adversarial distance: the paper's L- and ω-bound, curvature, CLEVER, and sound ones."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
