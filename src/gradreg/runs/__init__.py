"""Runs: their directories and checkpoints, recipes and settings, trained networks, and names that stand for models."""

from gradreg.runs.loading import load

__all__ = ["load"]
