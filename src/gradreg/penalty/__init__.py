"""The input gradient penalty by finite differences: usable in anybody's training loop."""

from gradreg.penalty.loss import RegularizedLoss, regularized_loss

__all__ = ["RegularizedLoss", "regularized_loss"]
