"""Radii as people write them: 0.5, or 8/255."""

import math


def fraction(text: str) -> float | None:
    """The number that is written, with or without a "/"; None if none is, or none that is finite."""
    above, slash, below = text.partition("/")
    try:
        value = float(above) / (float(below) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) else None
