"""The error of the bounds."""

from gradreg.errors import GradregError


class BoundsError(GradregError):
    """A model or a set of images for which an estimated bound would be meaningless."""
