"""Radii as people write them, 0.5 or 8/255: read and written."""

import math


def fraction(text: str) -> float | None:
    """The number in `text`, plain or as a fraction such as 8/255; None if it is not a finite number."""
    above, slash, below = text.partition("/")
    if not text.isascii() or "_" in text:  # Python would read the digits of every script, and 1_0 as 10
        return None
    try:
        value = float(above) / (float(below) if slash else 1.0)
    except (ValueError, ZeroDivisionError):
        return None
    return value if math.isfinite(value) else None


def radius_name(radius: float) -> str:
    """8/255 for a multiple of 1/255, 8.5/255 where that is easier to read, else the number itself."""
    parts, number = 255 * radius, f"{radius:g}"
    if radius < 0.2 and abs(parts - round(parts)) < 1e-6:
        return f"{round(parts)}/255"
    # 0.1 is 25.5/255, and nobody calls it that.
    tenths = radius < 0.2 and abs(parts - round(parts, 1)) < 1e-6 and len(number) > len("0.075")
    return f"{parts:.1f}/255" if tenths else number
