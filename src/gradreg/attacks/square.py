"""Square: random squares, kept if they raise the margin; scores but no gradients."""

import torch
from torch import Tensor

from gradreg.attacks.geometry import rescale
from gradreg.attacks.run import attack_on
from gradreg.attacks.search import Search
from gradreg.checks.scalars import Count, UpTo1
from gradreg.norms import per_image

# At least so many signs are drawn for a patch.
_SIGNS = 64


@attack_on("l2", "linf", because="its patches are made for their balls")
def square(search: Search, steps: Count = 500, share: UpTo1 = 0.3) -> None:
    """Random search with square patches (Andriushchenko et al. 2020), with places and colours drawn per image.

    Patches cover the fraction `share` of the image at first and shrink with the steps. Without radii, the ball shrinks
    below every adversarial image that is found, which minimises the distance. Images are the last two axes.
    """
    x, threat = search.x, search.threat
    wide = (search.high - search.low) * (0.5 if threat.name == "linf" else 0.25 * x[0].numel() ** 0.5)
    radius = search.goal * (1 - 1e-5) if search.fixed_radius else torch.full_like(search.distance, wide)
    radius = torch.minimum(radius, 0.98 * search.distance)
    known = per_image(search.found, x).bool()
    delta = _fit(search, torch.where(known, search.delta, _stripes(search)), radius)
    best = search.margin(x + delta)
    for step in range(1, steps):
        patch, colour = _patch(search, step, share * max(0.02, (1 - step / steps) ** 2))
        if threat.name == "linf":
            trial = torch.where(patch, colour * per_image(radius, x), delta)
        else:
            covered = patch.expand_as(x).flatten(1).sum(1).sqrt()
            trial = delta + patch * colour * per_image(0.5 * radius / covered, x)
        trial = _fit(search, trial, radius)
        reached = search.margin(x + trial)
        better = reached > best
        delta = torch.where(per_image(better, x).bool(), trial, delta)
        best = torch.where(better, reached, best)
        if not search.fixed_radius:
            # Once adversarial the ball is drawn closer, and the margin has to be earned again inside it.
            shrunk = best > 0
            radius = torch.where(shrunk, torch.minimum(radius, 0.97 * search.distance), radius)
            delta = torch.where(per_image(shrunk, x).bool(), _fit(search, delta, radius), delta)
            best = torch.where(shrunk, -torch.inf, best)


def _fit(search: Search, delta: Tensor, radius: Tensor) -> Tensor:
    """Onto the ball's surface and into the box."""
    if search.threat.name == "l2":
        delta = rescale(delta, search.threat.norm(delta), radius)
    return search.clamp(search.x + search.threat.project(delta, radius)) - search.x


def _stripes(search: Search) -> Tensor:
    """Vertical stripes of random sign, the paper's best initialisation."""
    row = search.x[..., :1, :] if search.x.ndim > 2 else search.x
    signs = torch.where(search.uniform(0, row) < 0.5, -1.0, 1.0).to(search.x.dtype)
    return signs.expand_as(search.x).clone()


def _patch(search: Search, step: int, share: float) -> tuple[Tensor, Tensor]:
    """A square of about that fraction of the image, and one sign per channel."""
    shape = search.x.shape
    height, width = (shape[-2], shape[-1]) if len(shape) > 2 else (1, shape[-1])
    side = max(1, round((share * height * width) ** 0.5)) if height > 1 else max(1, round(share * width))
    sides = min(side, height), min(side, width)
    channels = shape[1] if len(shape) > 3 else 1
    luck = search.uniform(step, search.x.flatten(1)[:, :1].expand(-1, 2 + max(_SIGNS, channels)))
    inside = []
    for axis, (length, covered) in enumerate(zip((height, width), sides, strict=True)):
        first = (luck[:, axis] * (length - covered + 1)).floor()[:, None]
        place = torch.arange(length, device=search.x.device)
        inside.append((place >= first) & (place < first + covered))
    rows, columns = inside
    patch = rows[:, :, None] & columns[:, None, :] if len(shape) > 2 else columns
    patch = patch.view(len(patch), *[1] * (len(shape) - 3), *patch.shape[1:]) if len(shape) > 2 else patch
    signs = torch.where(luck[:, 2 : 2 + channels] < 0.5, -1.0, 1.0).to(search.x.dtype)
    return patch, signs.view(len(signs), channels, *[1] * (len(shape) - 2)) if len(shape) > 2 else signs
