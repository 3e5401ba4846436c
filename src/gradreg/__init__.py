"""gradreg: adversarially robust image classifiers by input gradient regularization, and how robust they really are.

The public names stand in `__init__.pyi`, here and in every package below. They are imported when first used, so that
`import gradreg` and `gradreg --help` answer at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
