"""`python -m docs.make` makes every page and figure of docs again; with names, those alone."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro

from docs.make.figures import FIGURES, redraw
from docs.make.fill import fill, has_tables
from gradreg.errors import DataError, GradregError

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Make:
    """Make pages and figures of docs again from results/, and say which changed."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Pages (.md) and figures (.svg); default: all of docs, and README.md."""

    def run(self) -> None:
        for file in self.files or everything(ROOT):
            state = "changed" if make(file, ROOT) else "up to date"
            sys.stdout.write(f"{shown(file, ROOT)}: {state}\n")
            sys.stdout.flush()


def make(file: Path, root: Path) -> bool:
    """Make one page or figure again; whether that changed it."""
    name = shown(file, root)
    if name in FIGURES:
        return redraw(name, root)
    if file.suffix != ".md":
        raise DataError(f"A file to make must be a page (.md) or one of {', '.join(FIGURES)}; got {file}.")
    return fill(file)


def everything(root: Path) -> Iterator[Path]:
    """Every page that has a table to make, then every figure."""
    yield from pages(root)
    yield from (root / name for name in FIGURES)


def pages(root: Path) -> Iterable[Path]:
    """README.md and the pages of docs, those with marked tables alone."""
    return [page for page in (root / "README.md", *sorted((root / "docs").glob("*.md"))) if has_tables(page)]


def shown(file: Path, root: Path) -> str:
    """The path from the checkout, with slashes; as it is for a file elsewhere."""
    path = file.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(file)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit status 2."""
    try:
        tyro.cli(Make, prog="python -m docs.make", args=arguments).run()
    except GradregError as mistake:
        sys.stderr.write(f"docs.make: {mistake}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
