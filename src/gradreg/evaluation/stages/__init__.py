"""The stages of an evaluation, one file each. Every one is kept in the ledger when it is finished."""

from gradreg.evaluation.stages import attacks, bounds, clean, confirmation, diagnosis, fresh, norm, smoothing

__all__ = ["attacks", "bounds", "clean", "confirmation", "diagnosis", "fresh", "norm", "smoothing"]
