"""Tables inside a page of prose: each stands between marks that say what it is made from, and is made again there.

    <!-- gradreg: reference linf 8/255 from results/cifar10/* -->
    …
    <!-- gradreg: end -->

After "gradreg:" stands one of

- the key of a table of the report, with "quoted" behind it for the paper's own rows below ours,
- "reference" with a threat and a radius, or "paired" or "contrast" with a threat and radii,
- "ordering": whether the paper's order of models holds,
- "networks": those that the package carries, from their folders,
- "runs": training runs side by side, from run directories instead of evaluations,
- "attacks" and one of its tables, from a file of `python -m bench attacks --json`,
- "claims", from a file of `python -m bench claims --json`,
- "steps", from a file of `python -m bench training --json`,
- "precision", from a file of `python -m bench precision --json`,
- "band learned" or "band judged", from a file of `python -m bench band --json`,
- "verdicts" and answer, goals, shootout, figure, trials or dials, from records of `python -m bench verdict --out`,
  with times from results/bench/steps.json, the file of `python -m bench steps --json`.

After "from" stand the folders, as patterns relative to the checkout of the page (the nearest folder above it that holds
a pyproject.toml).
"""

import re
from collections.abc import Sequence
from pathlib import Path

from docs.make import benches
from docs.make.band import band_table
from docs.make.claims import claims_table
from docs.make.dials import dials_table
from docs.make.goals import answer_table, goals_table
from docs.make.networks import networks_table
from docs.make.ordering import ordering
from docs.make.precision import precision_table
from docs.make.shootout import figure_table, shootout_table
from docs.make.steps import steps_table
from docs.make.trials import trials_table
from docs.make.verdicts import read_verdicts
from gradreg.config.fractions import fraction
from gradreg.errors import DataError
from gradreg.evaluation.files import FACTS
from gradreg.report.comparison import Comparison
from gradreg.report.tables.contrast import contrast
from gradreg.report.tables.formats import rows_only
from gradreg.report.tables.layout import Table
from gradreg.report.tables.paired import pairs
from gradreg.report.tables.reference import reference
from gradreg.report.tables.registry import tables
from gradreg.report.tables.runs import read, runs_table
from gradreg.report.writing import compare
from gradreg.runs.directory import CONFIG
from gradreg.runs.networks import ENTRIES
from gradreg.writing import write_text

_BLOCK = re.compile(
    r"^(<!-- gradreg: (?!end)(.+?) from (.+?) -->\n).*?^(<!-- gradreg: end -->)", re.DOTALL | re.MULTILINE
)
_MARK = re.compile(r"^<!-- gradreg:", re.MULTILINE)
_OF_VERDICTS = {
    "answer": answer_table,
    "goals": goals_table,
    "shootout": shootout_table,
    "figure": figure_table,
    "trials": trials_table,
    "dials": dials_table,
}


def fill(page: Path) -> bool:
    """Make the tables of a page again; whether that changed it."""
    old = _text(page)
    new = filled(old, _root(page))
    if new != old:
        write_text(page, new)
    return new != old


def has_tables(page: Path) -> bool:
    """Whether the page has a mark to make a table at; one in an indented block of code is an example."""
    return bool(_MARK.search(_text(page)))


def filled(text: str, root: Path) -> str:
    """The text with every table in it made again."""
    blocks = len(_BLOCK.findall(text))
    if len(_MARK.findall(text)) != 2 * blocks:
        raise DataError(
            "A mark on the page has no partner. A table must stand between <!-- gradreg: KEY from PATHS --> and "
            "<!-- gradreg: end -->, each on a line of its own."
        )
    if not blocks:
        raise DataError(
            "The page has no table to make. Put <!-- gradreg: KEY from PATHS --> and <!-- gradreg: end --> "
            "where one is to stand."
        )

    def made(block: re.Match[str]) -> str:
        begin, what, where, end = block.groups()
        found = _made(what.split(), where.split(), root)
        below = f"\n\n{rows_only(found)}" if found.rows else ""
        return f"{begin}\n{found.caption}{below}\n\n{end}"

    return _BLOCK.sub(made, text)


def table(words: Sequence[str], found: Comparison) -> Table:
    """The table of evaluations that a mark asks for."""
    match words:
        case ["reference", "l1" | "l2" | "linf" as threat, radius]:
            return reference(found, threat, _radius(radius))
        case ["paired", "l1" | "l2" | "linf" as threat, *radii] if radii:
            return pairs(found, threat, [_radius(radius) for radius in radii])
        case ["contrast", "l1" | "l2" | "linf" as threat, *radii] if radii:
            return contrast(found, threat, [_radius(radius) for radius in radii])
        case ["ordering"]:
            return ordering(found)
    key, *manner = words
    known = {each.key: each for each in tables(found, paper=manner == ["quoted"])}
    if manner not in ([], ["quoted"]) or key not in known:
        raise DataError(
            f"A mark must name one of the tables {', '.join(known)}, ordering, or reference, paired or contrast with a "
            f"threat and a radius such as linf 8/255; got {' '.join(words)!r}."
        )
    return known[key]


def folders(patterns: Sequence[str], root: Path, file: str, what: str) -> list[Path]:
    """The folders that the patterns match and that hold the file, in the order of the patterns, then the alphabet."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        places = sorted(place for place in root.glob(pattern) if (place / file).is_file())
        if not places:
            raise DataError(f"No {what} matches {pattern} in {root}. Name folders that hold one.")
        found |= dict.fromkeys(places)
    return list(found)


def _made(words: Sequence[str], patterns: Sequence[str], root: Path) -> Table:
    match words:
        case ["networks"]:
            return networks_table(folders(patterns, root, ENTRIES, "network"))
        case ["runs"]:
            return runs_table([read(place) for place in folders(patterns, root, CONFIG, "run")])
        case ["claims"]:
            return claims_table(root / " ".join(patterns))
        case ["steps"]:
            return steps_table(root / " ".join(patterns))
        case ["precision"]:
            return precision_table(root / " ".join(patterns))
        case ["band", *kind]:
            return band_table(kind, root / " ".join(patterns))
        case ["verdicts", kind] if kind in _OF_VERDICTS:
            return _OF_VERDICTS[kind](read_verdicts(patterns, root))
        case ["attacks", *kind]:
            return benches.attacks_table(kind, benches.read(root / " ".join(patterns)))
    return table(words, compare(folders(patterns, root, FACTS, "evaluation")))


def _text(page: Path) -> str:
    try:
        return page.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{page} cannot be read as a page of text: {error}.") from error


def _radius(text: str) -> float:
    radius = fraction(text)
    if radius is None:
        raise DataError(f"A radius must be a number or a fraction, such as 0.5 or 8/255; got {text!r}.")
    return radius


def _root(page: Path) -> Path:
    above = page.resolve().parents
    return next((folder for folder in above if (folder / "pyproject.toml").is_file()), above[0])
