"""Tables inside a page of prose: each stands between marks that say what it is made from, and is made again there.

    <!-- gradreg: reference linf 8/255 from results/cifar10/* -->
    …
    <!-- gradreg: end -->

After "gradreg:" stands the key of a table of the report, with "quoted" behind it if the paper's own rows are to stand
below ours, "reference" with a threat and a radius, or "paired" or "contrast" with a threat and radii; after "from" the
evaluations, as paths relative to the page's checkout (the nearest folder above it that holds a pyproject.toml). The
table "runs" is made from run directories instead, "attacks", with which of its tables, from a file of `python -m bench
attacks --json`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from gradreg.config.fractions import fraction
from gradreg.errors import DataError
from gradreg.evaluation.files import FACTS, load
from gradreg.evaluation.record import Evaluation
from gradreg.report import benches
from gradreg.report.contrast import contrast
from gradreg.report.formats import rows_only
from gradreg.report.layout import Table
from gradreg.report.paired import pairs
from gradreg.report.reference import reference
from gradreg.report.runs import read, runs_table
from gradreg.report.tables import tables
from gradreg.runs.directory import CONFIG
from gradreg.storage import replacing

_BLOCK = re.compile(r"(<!-- gradreg: (?!end)(.+?) from (.+?) -->\n).*?(<!-- gradreg: end -->)", re.DOTALL)


def fill(page: Path) -> bool:
    """Make the tables of a page again; whether that changed it."""
    try:
        old = page.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{page} cannot be read as a page of text: {error}.") from error
    new = filled(old, _root(page))
    if new != old:
        with replacing(page) as aside:
            aside.write_text(new, "utf-8")
    return new != old


def filled(text: str, root: Path) -> str:
    """The text with every table in it made again."""
    if text.count("<!-- gradreg:") != 2 * len(_BLOCK.findall(text)):
        raise DataError(
            "A mark on the page has no partner: a table stands between <!-- gradreg: KEY from PATHS --> and "
            "<!-- gradreg: end -->, each on a line of its own."
        )

    if not _BLOCK.search(text):
        raise DataError(
            "There is no table on the page to be made: put <!-- gradreg: KEY from PATHS --> and <!-- gradreg: end --> "
            "where one is to stand."
        )

    def made(block: re.Match[str]) -> str:
        begin, what, where, end = block.groups()
        words, patterns = what.split(), where.split()
        if words == ["runs"]:
            found = runs_table([read(place) for place in _places(patterns, root, CONFIG, "run")])
        elif words[0] == "attacks":
            found = benches.attacks_table(words[1:], benches.read(root / where))
        else:
            found = table(words, [load(place) for place in _places(patterns, root, FACTS, "evaluation")])
        return f"{begin}\n{found.caption}\n\n{rows_only(found)}\n\n{end}"

    return _BLOCK.sub(made, text)


def table(words: Sequence[str], found: Sequence[Evaluation]) -> Table:
    """The table that a mark asks for."""
    match words:
        case ["reference", "l1" | "l2" | "linf" as threat, radius]:
            return reference(found, threat, _radius(radius))
        case ["paired", "l1" | "l2" | "linf" as threat, *radii] if radii:
            return pairs(found, threat, [_radius(radius) for radius in radii])
        case ["contrast", "l1" | "l2" | "linf" as threat, *radii] if radii:
            return contrast(found, threat, [_radius(radius) for radius in radii])
    key, *manner = words
    known = {each.key: each for each in tables(found, paper=manner == ["quoted"])}
    if manner not in ([], ["quoted"]) or key not in known:
        raise DataError(
            f"{' '.join(words)!r} is no table of these evaluations: there are {', '.join(known)}; and reference, "
            "paired and contrast, with a threat and a radius as linf 8/255."
        )
    return known[key]


def _radius(text: str) -> float:
    radius = fraction(text)
    if radius is None:
        raise DataError(f"{text!r} is no radius: write a number or a fraction, as 0.5 or 8/255.")
    return radius


def _places(patterns: Sequence[str], root: Path, file: str, what: str) -> list[Path]:
    """The folders that the patterns match and that hold the file, in the order of the patterns, then the alphabet."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        places = sorted(place for place in root.glob(pattern) if (place / file).is_file())
        if not places:
            raise DataError(f"No {what} matches {pattern} in {root}: a mark names the folders that hold one.")
        found |= dict.fromkeys(places)
    return list(found)


def _root(page: Path) -> Path:
    above = page.resolve().parents
    return next((folder for folder in above if (folder / "pyproject.toml").is_file()), above[0])
