"""Whether models trained on the paper's objectives rank as the paper's own do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from gradreg.evaluation.record import Evaluation
from gradreg.report.comparison import Comparison
from gradreg.report.numbers import images
from gradreg.report.tables import paper, quoted
from gradreg.report.tables.cells import word
from gradreg.report.tables.layout import Cell, Column, Row, Table

_BUILDERS: Mapping[str, Callable[[Comparison], Table]] = {
    "table-1": paper.table_1,
    "table-2": paper.table_2,
    "table-3": paper.table_3,
    "table-5": paper.table_5,
}
_Values = Mapping[str, float]


def ordering(comparison: Comparison) -> Table:
    """A row for every column that the paper and we have figures of two models or more in, hours aside."""
    on_cifar10 = [each for each in comparison.evaluations if each.data.name == "cifar10"]
    # Of several seeds of an objective the first.
    ours = {name: each for each in reversed(on_cifar10) if (name := objective_name(each))}
    return Table(
        "ordering",
        "The paper's order",
        "The models of each column, best first, as the paper has them on CIFAR-10, and how many pairs of models stand "
        f"the same way here, over {images(len(each) for each in ours.values())}. Each was trained once, there and "
        "here, so a pair that is close may be the other way round by chance.",
        (
            Column("paper's order", "Best first; equal ones are joined by =."),
            Column("pairs as there", "Of those that differ in the paper."),
            Column("otherwise here", "Pairs that stand the other way round here, the better one first; or are equal."),
        ),
        tuple(_rows(ours)),
        of="column",
    )


def objective_name(evaluation: Evaluation) -> str:
    """What the paper's tables call the objective, in few words; empty for those that they do not have."""
    match (evaluation.subject.recipe or {}).get("objective"):
        case {"name": "undefended"}:
            return "undefended"
        case {"name": "adversarial", "threat": "linf", "steps": 7, "eps": eps}:
            # The authors' radius of 0.0314 is 8.007/255.
            return f"AT {round(255 * eps)}/255" if abs(255 * eps - round(255 * eps)) < 0.01 else ""
        case {"name": "gradient", "threat": "linf" | "l2" as threat, "lam": lam, **others}:
            paper_form = others.get("squared") is not False and others.get("scale") in (None, "paper")
            return f"{'l1' if threat == 'linf' else 'l2'} {lam:g}" if paper_form else ""
    return ""


def _rows(ours: Mapping[str, Evaluation]) -> Iterator[Row]:
    for key, build in _BUILDERS.items() if ours else ():
        made = build(Comparison.of(list(ours.values())))
        measured = {each.subject.name: name for name, each in ours.items()}
        here = {measured[row.name]: row.cells for row in made.rows}
        there = {_short(row.name): row.cells for row in quoted.rows(key, "cifar10")}
        both = [name for name in there if name in here]
        for i, column in enumerate(made.columns):
            if column.better is None or column == paper.HOURS:
                continue
            sign = 1 if column.better == "low" else -1
            theirs, found = (_values(cells, both, i, sign) for cells in (there, here))
            shared = theirs.keys() & found.keys()
            # Columns without any order in the paper cannot be compared.
            if len({theirs[name] for name in shared}) > 1:
                yield Row(f"{made.title.split(':')[0]}, {column.heading}", _compare(theirs, found))


def _values(cells: Mapping[str, tuple[Cell, ...]], names: Sequence[str], i: int, sign: int) -> dict[str, float]:
    """Small is good, for every column."""
    found = {name: cells[name][i].value for name in names}
    return {name: sign * value for name, value in found.items() if value is not None}


def _compare(there: _Values, here: _Values) -> tuple[Cell, ...]:
    names = sorted((name for name in there if name in here), key=lambda name: there[name])
    same, different, otherwise = 0, 0, []
    for better, worse in combinations(names, 2):
        if there[better] == there[worse]:
            continue
        different += 1
        if here[better] < here[worse]:
            same += 1
        else:
            equal = here[better] == here[worse]
            otherwise.append(f"{better} = {worse}" if equal else f"{worse}, {better}")
    joints = [" = " if there[last] == there[name] else ", " for last, name in pairwise(names)]
    order = names[0] + "".join(joint + name for joint, name in zip(joints, names[1:], strict=True))
    share = same / different if different else None
    return word(order), Cell(f"{same} of {different}", share), word("; ".join(otherwise) or "–")


def _short(name: str) -> str:
    """The paper's row in the words of `objective_name`."""
    name = name.removeprefix("paper, CIFAR-10: ")
    return name.replace("l∞ 7-step AT, ε = ", "AT ").replace("squared ", "").replace(" norm, λ = ", " ")
