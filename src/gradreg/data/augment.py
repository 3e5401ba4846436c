"""Random changes to whole batches of bytes, (n, c, h, w) in and out.

A step takes a batch and `draw`: `draw(k)` is a uniform integer in {0, …, k-1} per image of the batch. A process that
holds a part of a larger batch draws for all of it and keeps its own, so an image is augmented the same way whatever the
number of processes. Integer arithmetic only: results are the same to the bit on every device.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gradreg.checks.fields import conform
from gradreg.checks.scalars import Range, shown
from gradreg.errors import ConfigError, did_you_mean

Draw = Callable[[int], Tensor]
Step = Callable[[Tensor, Draw], Tensor]
Spec = str | Mapping[str, Any] | Step


def per_image(generator: torch.Generator, size: int, share: slice, device: torch.device | str | None = None) -> Draw:
    """Draws for the images at `share` of a batch of `size`."""

    def draw(k: int) -> Tensor:
        return torch.randint(k, (size,), generator=generator)[share].to(device, non_blocking=True)

    return draw


def crop(batch: Tensor, draw: Draw, padding: int = 4, fill: float = 128 / 255) -> Tensor:
    """A window of the old size, at random in the image padded with `fill` (the authors' mid-grey) on every side."""
    n, channels, height, width = batch.shape
    padded = F.pad(batch, (padding,) * 4, value=round(255 * fill))
    top, left = (draw(2 * padding + 1).view(-1, 1, 1) for _ in range(2))
    # Each row of the result is a run of bytes of the padded batch. Copying runs is several times faster than
    # gathering pixels or windows.
    plane = torch.arange(n * channels, device=batch.device).view(n, channels, 1)
    row = plane * padded.shape[2] + top + torch.arange(height, device=batch.device)
    runs = padded.flatten().unfold(0, width, 1)
    return runs.index_select(0, (row * padded.shape[3] + left).flatten()).view(batch.shape)


def flip(batch: Tensor, draw: Draw) -> Tensor:
    """Left and right exchanged in half of the images."""
    mirrored = draw(2).view(-1, 1, 1, 1)
    return _choose(mirrored, batch.flip(3), batch)


def cutout(batch: Tensor, draw: Draw, size: int = 16) -> Tensor:
    """A square, cut off at the borders, painted over with its own mean colour (rounded to a byte).

    The centre of an even-sided square is a corner between pixels, of which an axis has one more than pixels.
    """
    rows = _interval(batch.shape[2], size, draw)
    columns = _interval(batch.shape[3], size, draw)
    inside = (rows[:, :, None] & columns[:, None, :]).unsqueeze(1)
    area = (rows.sum(1) * columns.sum(1)).unsqueeze(1)
    total = (batch * inside).sum((2, 3))
    mean = ((2 * total + area) // (2 * area)).to(torch.uint8)
    return _choose(inside, mean[:, :, None, None], batch)


_STEPS: dict[str, Callable[..., Tensor]] = {"crop": crop, "flip": flip, "cutout": cutout}
_LIMITS: dict[str, Any] = {
    "padding": Annotated[int, Range(least=0, most=1024)],
    "size": Annotated[int, Range(least=1, most=1024)],
    "fill": Annotated[float, Range(least=0, most=1)],
}


def pipeline(specs: Sequence[Spec] | None) -> tuple[Step, ...]:
    """Steps from a recipe: names, tables such as {name = "crop", fill = 0.0}, or functions of (batch, draw)."""
    if not isinstance(specs, Sequence | None) or isinstance(specs, str):
        raise ConfigError(f"augment must be a list of steps, as ['crop', 'flip']; got {shown(specs)}.")
    return tuple(spec if callable(spec) else _step(spec) for spec in specs or ())


def _step(spec: str | Mapping[str, Any]) -> Step:
    if not isinstance(spec, str | Mapping):
        raise ConfigError(f"A step of augment must be a name, a table or a function; got {shown(spec)}.")
    options: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", None)
    if name not in _STEPS:
        hint = did_you_mean(name, _STEPS)
        raise ConfigError(f"There is no augmentation {name!r}{hint}: choose one of {', '.join(_STEPS)}.")
    known = list(inspect.signature(_STEPS[name]).parameters)[2:]
    if unknown := [option for option in options if option not in known]:
        raise ConfigError(f"Augmentation {name!r} has no option {unknown[0]!r}: it has {', '.join(known) or 'none'}.")
    checked = {
        option: conform(f"{option} of augmentation {name!r}", value, _LIMITS[option])
        for option, value in options.items()
    }
    return partial(_STEPS[name], **checked)


def _interval(length: int, size: int, draw: Draw) -> Tensor:
    """Which pixels of an axis a randomly centred interval of `size` covers: (n, length), bytes 0 and 1."""
    start = draw(length + (size % 2 == 0)).unsqueeze(1) - size // 2
    pixel = torch.arange(length, device=start.device)
    return ((pixel >= start) & (pixel < start + size)).to(torch.uint8)


def _choose(mask: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """`torch.where` for bytes and a mask of 0 and 1, by bits: on a CPU it takes a fifth of the time."""
    return no ^ ((no ^ yes) & mask.to(torch.uint8).neg())
