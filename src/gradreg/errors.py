"""What a user did wrong, in one sentence: what was wrong, what was expected, what to do."""


class GradregError(Exception):
    """The base of every error that gradreg raises on purpose."""


class ConfigError(GradregError):
    """An argument, option or combination of them that cannot mean anything sensible."""


class ModelError(GradregError):
    """A model that cannot be built, or whose output or mode would give silently wrong numbers."""


class DataError(GradregError):
    """Images or labels that are missing, damaged or of the wrong kind."""


class PrecisionError(GradregError):
    """Arithmetic too coarse for the asked finite difference."""
