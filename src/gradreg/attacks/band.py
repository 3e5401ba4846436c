"""The band above a radius in which an image needs the whole suite: learned, per norm, with what it can have missed.

The attacks that measure distances come first. They overestimate the distance to the nearest adversarial image, by a
factor that was measured on other networks and images (`python -m bench band`). An image whose distance exceeds the
radius by more than the largest such factor is left: the long attacks would not have reached the radius either.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """How many radii away an image is left, and how often that can be wrong."""

    factor: float
    images: int
    """Images that it was learned on; none of them exceeded it."""
    limit: float
    """The fraction of images that exceed it, at most, with 95 % confidence: for images and networks like those."""

    def __str__(self) -> str:
        return (
            f"beyond {self.factor:g} radii; wrong for at most {100 * self.limit:.2f} % of images (95 % limit, learned "
            f"on {self.images:,} others)"
        )


# As in results/bench/band.json; a test compares them.
BANDS: dict[str, Band] = {
    "l2": Band(1.15, 1745, 0.00172),
    "linf": Band(1.25, 1745, 0.00172),
}
