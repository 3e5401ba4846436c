"""`gradreg inspect`: which image is meant, and its inspection as a picture and a table."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gradreg.bounds import Regularity
from gradreg.cli.arguments import Inline, ModelArguments, ModelName
from gradreg.data import DataSet
from gradreg.data.decode import as_rgb, need_pillow, opened
from gradreg.errors import ConfigError, DataError
from gradreg.extras import need
from gradreg.inspection.figure import draw
from gradreg.inspection.image import inspect_image
from gradreg.inspection.options import InspectionOptions
from gradreg.inspection.record import Inspection

# As many as 64 bits hold: Python refuses to read thousands.
_DIGITS = 18


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Inspect one image: its nearest adversarial image by each attack, its bounds and its certificate, as PNG."""

    image: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="IMAGE")]
    """The path of an image of the model's input size, or a position in the test set."""
    model: ModelName
    named: Annotated[ModelArguments, Inline] = field(default_factory=ModelArguments)
    options: Annotated[InspectionOptions, Inline] = field(default_factory=InspectionOptions)
    label: str | None = None
    """The true class, by name or number; default: the test set's, or for a file the model's own answer."""
    regularity: Path | None = None
    """A saved Regularity for the bounds; default: estimated around the image."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("inspection.png")
    """Where the picture goes, a .png file."""

    def run(self) -> None:
        if self.output.suffix.lower() != ".png":
            raise ConfigError(f"The output must be a .png file; got {self.output}.")
        need("matplotlib", "The picture")
        known = None if self.regularity is None else Regularity.load(self.regularity)
        with self.named.opened(self.model) as (opened, device):
            x, y = _chosen_image(opened.data, self.image, self.label)
            found = inspect_image(
                opened.model, x.to(device), y, self.options, regularity=known, classes=opened.data.classes
            )
        show(found, self.output, Console())


def show(found: Inspection, output: Path, console: Console) -> None:
    """Draw the picture, and print the table and what it says."""
    draw(found, output)
    console.print(_table(found))
    for line in (*found.statements(), f"The picture is {output}."):
        console.print(line, highlight=False)


def _chosen_image(data: DataSet, image: str, label: str | None = None) -> tuple[Tensor, int | None]:
    """The image that the command line names, by its position in the test set or as a file, and its label if known.

    A file must have the size that the model takes: a resized image would be another image.
    """
    given = None if label is None else _class(data.classes, label)
    if (position := _number(image)) is not None:
        count = len(data.test)
        if position >= count:
            raise DataError(f"There is no test image {image[:20]} in {data.name}: it has images 0 to {count - 1}.")
        return data.test.floats([position])[0], int(data.test.labels[position]) if given is None else given
    wanted = tuple(data.test.floats([0]).shape[1:])
    return _decoded(Path(image), wanted), given


def _class(classes: tuple[str, ...], label: str) -> int:
    if label in classes:
        return classes.index(label)
    if (number := _number(label)) is not None and number < len(classes):
        return number
    raise DataError(f"There is no class {label[:80]!r}: take one of {', '.join(classes[:20])}, or its number.")


def _number(word: str) -> int | None:
    """The number that digits stand for: not ², and of thousands of them no more than the first."""
    return int(word[:_DIGITS]) if word.isascii() and word.isdigit() else None


def _decoded(path: Path, wanted: tuple[int, ...]) -> Tensor:
    if not path.exists():
        raise DataError(f"There is no image {path}: give the path of an image file, or a position in the test set.")
    need_pillow()
    from numpy import array

    with opened(path) as image:
        picture = as_rgb(image)
        pixels = torch.from_numpy(array(picture if wanted[0] == 3 else picture.convert("L"))).float() / 255
    x = pixels.permute(2, 0, 1) if pixels.ndim == 3 else pixels[None]
    if tuple(x.shape) != wanted:
        raise DataError(
            f"{path} must have {wanted[2]}×{wanted[1]} pixels, as the model takes; got {x.shape[2]}×{x.shape[1]}. "
            "Resize it yourself, since that changes the image that is inspected."
        )
    return x


def _table(found: Inspection) -> Table:
    table = Table(title=f"nearest adversarial images, {found.symbol}", title_style="")
    for heading in ("attack", "distance", "taken for", "forwards", "backwards"):
        table.add_column(heading, justify="left" if heading in ("attack", "taken for") else "right")
    for one in found.ranked:
        broken = one.distance < float("inf")
        answer = found.classes[one.prediction] if broken else "–"
        table.add_row(
            one.attack, f"{one.distance:.4g}" if broken else "none", answer, str(one.forwards), str(one.backwards)
        )
    return table
