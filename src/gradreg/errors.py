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


class RunError(GradregError):
    """A run directory that is in the way, missing, damaged or that cannot be written to."""


class TrainingFailed(GradregError):  # noqa: N818
    """Training that went wrong in a way that is recognised: it says how, where and what helps."""


class Interrupted(Exception):  # noqa: N818
    """A signal ended the run after it was saved; no mistake of anybody's."""

    def __init__(self, sentence: str, signal: int) -> None:
        super().__init__(sentence)
        self.signal = signal
