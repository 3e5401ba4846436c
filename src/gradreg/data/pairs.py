"""Images and labels out of whatever holds them: pairs and mappings, one image or many, tensors, arrays or pictures.

Bytes become floats in [0, 1]. Floats are taken as they are: whether they are pixels is checked where they are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from gradreg.calling.targets import Target, changed, leaves
from gradreg.checks.scalars import shown
from gradreg.checks.tensors import check_rows
from gradreg.data.asking import entries, failing
from gradreg.data.decode import as_rgb
from gradreg.errors import DataError
from gradreg.storage import memory

if TYPE_CHECKING:
    from typing_extensions import TypeIs

# By the names that data sets of Hugging Face and their users' collators give them; the first that is there counts.
IMAGES = ("image", "images", "img", "pixel_values", "pixels")
LABELS = ("label", "labels", "target", "targets", "fine_label")
_EXPECTED = "(images, labels), or a mapping with 'image' or 'pixel_values' and 'label' or 'labels'"
# An array with its channels last has so many of them.
_CHANNELS = (1, 3, 4)
# So many images are asked for twice: half of them are flipped by a random flip.
_ASKED_AGAIN = 16


@runtime_checkable
class Rows(Protocol):
    """A data set of single images by position, each a pair or a mapping."""

    def __len__(self) -> int: ...
    def __getitem__(self, position: int, /) -> Any: ...


_DIVIDED_TWICE = float(np.float32(1) / np.float32(255))


def pair(entry: Any, what: str = "The data") -> tuple[Any, Any]:
    """The images and the labels of a batch, or those of one image."""
    if isinstance(entry, Mapping):
        image, label = (next((key for key in keys if key in entry), None) for keys in (IMAGES, LABELS))
        if image is None or label is None:
            found = ", ".join(repr(str(key)[:40]) for key in list(entry)[:8])
            raise DataError(f"{what} must give {_EXPECTED}; got a mapping with {found or 'nothing'}.")
        return entry[image], entry[label]
    if isinstance(entry, list | tuple) and len(entry) == 2:
        return entry[0], entry[1]
    got = f"a {type(entry).__name__} of {len(entry)}" if isinstance(entry, list | tuple) else shown(entry)
    raise DataError(f"{what} must give {_EXPECTED}; got {got}.")


def tensors(data: object) -> tuple[Tensor, Tensor] | None:
    """(images, labels) as tensors, where images are a tensor or an array and labels may be a list; None otherwise."""
    if not isinstance(data, tuple) or len(data) != 2 or not isinstance(data[0], Tensor | np.ndarray):
        return None
    return (batch(data[0]), labels(data[1])) if isinstance(data[1], Tensor | np.ndarray | list | tuple) else None


def is_rows(data: object) -> TypeIs[Rows]:
    """Whether it is a data set of single images by position: torchvision's, Hugging Face's, a user's own."""
    return isinstance(data, Rows) and not isinstance(data, list | tuple | Mapping | Tensor | np.ndarray | str)


def count(data: Rows) -> int:
    """How many images such a data set says that it has, at least one."""
    with failing("its length"):
        found = len(data)
    if not found:
        raise DataError("The data holds no images.")
    return found


def rows(data: Rows, index: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Images and labels at some positions of such a data set."""
    return _stacked([_row(data, position) for position in index])


def _row(data: Rows, position: int) -> tuple[Tensor, Any]:
    """One image with its label; a picture may read its file only now."""
    with failing(f"image {position}"):
        x, y = pair(data[position])
        return image(x), y


def check_settled(data: Rows) -> None:
    """Refuse a data set that gives other images when it is asked again: what is read once would be one draw of it."""
    few = range(min(_ASKED_AGAIN, count(data)))
    if not torch.equal(rows(data, few)[0], rows(data, few)[0]):
        raise DataError(
            f"The data set {type(data).__name__} gives other images when it is asked again: leave out its random "
            "transforms, or train on a DataLoader of it, which asks again in every epoch."
        )


def stacked(entries: Sequence[tuple[Any, Any]]) -> tuple[Tensor, Tensor]:
    """Single images and their labels as one batch."""
    read: list[tuple[Tensor, Any]] = []
    for number, (x, y) in enumerate(entries):
        with failing(f"image {number} of a batch"):
            read.append((image(x), y))
    return _stacked(read)


def _stacked(entries: Sequence[tuple[Tensor, Any]]) -> tuple[Tensor, Tensor]:
    pictures, numbers = [x for x, _ in entries], [labels(y) for _, y in entries]
    shapes = {tuple(each.shape) for each in pictures}
    if len(shapes) > 1:
        sizes = " and ".join(map(str, sorted(shapes)[:2]))
        raise DataError(f"All images of the data must have one shape; got {sizes}: resize them in the data set.")
    try:
        return torch.stack(pictures), torch.stack(numbers)
    except (RuntimeError, TypeError) as error:
        raise DataError(f"The data must have labels of one shape: {' '.join(str(error).split())}.") from error


def batches(data: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of a loader, to be kept in memory; single images are batches of one."""
    images, held, most = 0, 0, memory() // 2
    for entry in entries(data):
        x, y = pair(entry)
        x, y = stacked([(x, y)]) if _single(y) else (batch(x), labels(y))
        x, y = check_rows("The images of the data", x), check_rows("The labels of the data", y)
        images, held = images + len(x), held + x.nbytes
        if held > most:  # when they are put together, they are there twice
            raise DataError(
                f"The images of a loader must take at most {most:,} bytes, half of this machine's memory; got more "
                f"with {images:,} images: pass a part of it, or a data set by position."
            )
        yield x, y


def batch(x: Any) -> Tensor:
    """Many images."""
    if isinstance(x, Tensor | np.ndarray):
        return _floats(x)
    if isinstance(x, Sequence) and not isinstance(x, str) and len(x):
        return stacked([(each, 0) for each in x])[0]
    raise DataError(f"The images of a batch must be a tensor, an array or a list of pictures; got {shown(x)}.")


def image(x: Any) -> Tensor:
    """One image, channels first."""
    if isinstance(x, Tensor | np.ndarray):
        return _floats(x)
    if hasattr(x, "convert") and hasattr(x, "mode"):  # one of Pillow's, which need not be installed otherwise
        picture = x if x.mode in ("L", "RGB") else as_rgb(x)
        pixels = torch.from_numpy(np.array(picture))
        return _floats(pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1))
    raise DataError(f"An image of the data must be a tensor, an array or a picture; got {shown(x)}.")


def targets(y: Any, device: torch.device | None) -> Target:
    """What a batch is trained towards, on the device: labels, or whatever form of tensors a criterion takes."""
    found = y if next(leaves(y), None) is not None else labels(y)
    return changed(found, lambda part: part.to(device, non_blocking=True))


def labels(y: Any) -> Tensor:
    """The labels of a batch."""
    try:
        return torch.as_tensor(_native(y) if isinstance(y, np.ndarray) else y)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"The labels of the data must be numbers; got {shown(y)}.") from error


def check_bytes(x: Tensor) -> Tensor:
    """Refuse images that were bytes of 0 and 1: masks or binary pictures, which would be nearly black."""
    if x.numel() and x.dtype == torch.float32 and float(x.max()) == _DIVIDED_TWICE and not x.min() < 0:
        raise DataError(
            "The images of the data must be bytes from 0 to 255, or floats; got whole numbers from 0 to 1, of which 1 "
            "would be nearly black: pass floats, or multiply them by 255."
        )
    return x


def _single(y: Any) -> bool:
    return np.ndim(y) == 0 if not isinstance(y, Tensor) else y.ndim == 0


def _channels_first(pixels: Tensor) -> Tensor:
    """Arrays mostly have their channels last; one whose last axis cannot be channels has them first."""
    if pixels.ndim < 3 or pixels.shape[-1] not in _CHANNELS:
        return pixels
    # Four rows of grey or RGB pixels are likelier than four channels of which each is so narrow.
    if pixels.shape[-3] not in _CHANNELS or (pixels.shape[-3] == 4 and pixels.shape[-1] != 4):
        return pixels.movedim(-1, -3).contiguous()
    return pixels


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy that torch takes: in this machine's order of bytes, forwards in memory, of a precision that it has."""
    kind = np.dtype(np.float64) if array.dtype == np.longdouble else array.dtype.newbyteorder("=")
    return np.array(array, dtype=kind, order="C")


def _floats(x: Tensor | np.ndarray[Any, Any]) -> Tensor:
    if not isinstance(x, Tensor):
        try:
            x = _channels_first(torch.from_numpy(_native(x)))
        except TypeError as error:
            raise DataError(f"The images of the data must be numbers; got {shown(x)}.") from error
    pixels = x
    return pixels.float().div(255) if pixels.dtype == torch.uint8 else pixels
