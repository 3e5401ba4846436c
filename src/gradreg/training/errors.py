"""What can go wrong with a run."""

from gradreg.errors import GradregError


class RunError(GradregError):
    """A run directory that is in the way, missing, damaged or that cannot be written to."""


class TrainingFailed(GradregError):  # noqa: N818
    """Training that went wrong in a way that is recognised: it says how, where and what helps."""


class Interrupted(Exception):  # noqa: N818
    """A signal ended the run after it was saved; no mistake of anybody's."""

    def __init__(self, sentence: str, signal: int) -> None:
        super().__init__(sentence)
        self.signal = signal
