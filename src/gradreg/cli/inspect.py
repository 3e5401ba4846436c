"""`gradreg inspect`: which image is meant, and its inspection as a picture and a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gradreg.bounds import Regularity
from gradreg.data import DataSet
from gradreg.data.decode import as_rgb, need_pillow
from gradreg.errors import ConfigError, DataError
from gradreg.inspection.figure import draw, summary
from gradreg.inspection.image import Inspection, inspect_image
from gradreg.norms import ThreatName
from gradreg.norms import threat as named_threat
from gradreg.penalty.passes import Model
from gradreg.runs.opening import open_model_on


def chosen(data: DataSet, image: str, label: str | None = None) -> tuple[Tensor, int | None]:
    """The image that the command line names, by its position in the test set or as a file, and its label if known.

    A file must have the size that the model takes: a resized image would be another image.
    """
    given = None if label is None else _class(data.classes, label)
    if image.isdigit():
        position, count = int(image), len(data.test)
        if position >= count:
            raise DataError(f"There is no test image {position} in {data.name}: it has images 0 to {count - 1}.")
        return data.test.floats([position])[0], int(data.test.labels[position]) if given is None else given
    wanted = tuple(data.test.floats([0]).shape[1:])
    return _decoded(Path(image), wanted), given


def _class(classes: tuple[str, ...], label: str) -> int:
    if label in classes:
        return classes.index(label)
    if label.isdigit() and int(label) < len(classes):
        return int(label)
    raise DataError(f"There is no class {label!r}: take one of {', '.join(classes[:20])}, or its number.")


def _decoded(path: Path, wanted: tuple[int, ...]) -> Tensor:
    if not path.is_file():
        raise DataError(f"There is no image {path}: give the path of an image file, or a position in the test set.")
    need_pillow()
    import PIL.Image
    from numpy import array

    try:
        with PIL.Image.open(path) as opened:
            picture = as_rgb(opened)
            pixels = torch.from_numpy(array(picture if wanted[0] == 3 else picture.convert("L"))).float() / 255
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be decoded as an image ({error}).") from error
    x = pixels.permute(2, 0, 1) if pixels.ndim == 3 else pixels[None]
    if tuple(x.shape) != wanted:
        raise DataError(
            f"{path} is {x.shape[2]}×{x.shape[1]} pixels, but the model takes {wanted[2]}×{wanted[1]}: resize it "
            "yourself, since that changes what is examined."
        )
    return x


def inspect_named(
    image: str,
    model: str,
    *,
    data: str | None,
    label: str | None,
    device: str,
    data_dir: Path | None,
    architecture: str | None,
    options: Sequence[str],
    **rest: Any,
) -> int:
    """`carry_out` for what a command line names, as `gradreg evaluate` takes it."""
    with open_model_on(device, model, data, data_dir, architecture, options) as (opened, place):
        x, y = chosen(opened.data, image, label)
        return carry_out(opened.model, x.to(place), y, opened.data.classes, **rest)


def carry_out(
    model: Model,
    x: Tensor,
    y: int | None,
    classes: Sequence[str],
    *,
    output: Path,
    console: Console,
    threat: ThreatName = "l2",
    attacks: Sequence[str] | None = None,
    sigma: float = 0.25,
    n: int = 10_000,
    regularity: Path | None = None,
    seed: int = 0,
) -> int:
    """`gradreg inspect`: the picture, and its figures as a table; 0 is the exit status of a job done."""
    if output.suffix.lower() != ".png":
        raise ConfigError(f"{output} is to be a picture: give it a name that ends in .png.")
    known = None if regularity is None else Regularity.load(regularity)
    found = inspect_image(
        model, x, y, threat=threat, attacks=attacks, sigma=sigma, n=n, regularity=known, classes=classes, seed=seed
    )
    draw(found, output)
    console.print(_table(found))
    for line in summary(found):
        console.print(line, highlight=False)
    console.print(f"The picture is {output}.", highlight=False)
    return 0


def _table(found: Inspection) -> Table:
    table = Table(title=f"nearest adversarial images, {named_threat(found.threat).symbol}", title_style="")
    for heading in ("attack", "distance", "taken for", "forwards", "backwards"):
        table.add_column(heading, justify="left" if heading in ("attack", "taken for") else "right")
    for one in found.ranked:
        broken = one.distance < float("inf")
        answer = found.classes[one.prediction] if broken else "–"
        table.add_row(
            one.attack, f"{one.distance:.4g}" if broken else "none", answer, str(one.forwards), str(one.backwards)
        )
    return table
