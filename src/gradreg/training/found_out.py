"""What a recipe for any images leaves open: their size, how many are held out, and a batch that they fill."""

from dataclasses import replace
from statistics import median

from gradreg.data import ImageFolder, load
from gradreg.data.decode import need_pillow, opened
from gradreg.runs.settings import Config

_LOOKED_AT = 64
_SMALLEST, _LARGEST, _STEP = 16, 64, 4
_HELD_OUT, _MOST_HELD_OUT = 10, 1000
_DEFAULT_HELD_OUT = Config.held_out


def found_out(config: Config, data_dir: str | None) -> Config:
    """The settings with numbers in the place of `auto`; what is set already stays."""
    if not config.auto:
        return config
    part = load(config.data, data_dir).train
    held_out = config.held_out
    if held_out == _DEFAULT_HELD_OUT:
        held_out = max(1, min(_MOST_HELD_OUT, len(part) // _HELD_OUT))
    batch_size = config.batch_size
    while batch_size > max(config.accumulate, len(part) - held_out) and batch_size % 2 == 0:
        batch_size //= 2
    size = _side(part) if isinstance(part, ImageFolder) and config.size is None else config.size
    return replace(config, auto=False, size=size, held_out=held_out, batch_size=batch_size)


def _side(folder: ImageFolder) -> int:
    """The median of the shorter sides, at most 64: what a small network trains on without a GPU."""
    need_pillow()
    step = max(1, len(folder) // _LOOKED_AT)
    sides = []
    for path in folder.paths[::step][:_LOOKED_AT]:
        with opened(path) as image:
            sides.append(min(image.size))
    side = int(median(sides)) // _STEP * _STEP
    return max(_SMALLEST, min(_LARGEST, side))
