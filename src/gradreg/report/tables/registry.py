"""Every table of the report, in the order shown. A new table is a module with a builder, and a line here."""

from collections.abc import Callable
from dataclasses import replace

from gradreg.evaluation.shares import top_k
from gradreg.report.comparison import Comparison
from gradreg.report.tables import (
    calibrated,
    confirmation,
    contrast,
    cost,
    findings,
    fresh,
    paired,
    paper,
    quoted,
    seeds,
    smoothing,
)
from gradreg.report.tables.layout import Table

_BUILDERS: tuple[Callable[[Comparison], Table], ...] = (
    findings.robust_accuracy,
    fresh.fresh_draws,
    confirmation.confirmation,
    paired.paired,
    seeds.seeds,
    contrast.contrasts,
    calibrated.calibrated,
    paper.table_1,
    paper.table_2,
    paper.table_3,
    paper.table_4,
    paper.table_5,
    smoothing.class_frequencies,
    findings.bound_validity,
    findings.winners,
    cost.cost,
    cost.origin,
)


def tables(comparison: Comparison, paper: bool = False) -> list[Table]:
    """Those that have rows; with `paper`, the paper's own rows for these data below ours, marked as quoted."""
    built = [_marked(build(comparison), comparison.topk) for build in _BUILDERS]
    data = comparison.evaluations[0].data.name
    return [_quoting(table, data, comparison.topk) if paper else table for table in built if table.rows]


def is_papers(table: Table) -> bool:
    """Whether it is one of the paper's tables, which keep its convention: errors."""
    return table.key.startswith("table-")


def _marked(table: Table, k: int) -> Table:
    """Every error and accuracy of a top-k evaluation says so, wherever the table ends up."""
    if k == 1:
        return table
    columns = tuple(replace(column, heading=top_k(column.heading, k)) for column in table.columns)
    return replace(table, title=f"{table.title}, top-{k}", caption=top_k(table.caption, k), columns=columns)


def _quoting(table: Table, data: str, k: int) -> Table:
    rows = quoted.rows(table.key, data, k)
    if not rows:
        return table
    return replace(table, rows=(*table.rows, *rows), caption=f"{table.caption} {quoted.REMARKS[table.key]}")
