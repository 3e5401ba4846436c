"""Every table of the report, computed from the columns of the evaluations."""

from collections.abc import Sequence
from dataclasses import replace

from gradreg.evaluation.record import Evaluation
from gradreg.report import confirmation, contrast, findings, paired, paper, paper_tables
from gradreg.report.compare import with_distinct_names
from gradreg.report.layout import Cell as Cell
from gradreg.report.layout import Column as Column
from gradreg.report.layout import Row as Row
from gradreg.report.layout import Table as Table

_BUILDERS = (
    paper_tables.table_1,
    paper_tables.table_2,
    paper_tables.table_3,
    paper_tables.table_4,
    paper_tables.table_5,
    findings.robust_error,
    confirmation.confirmation,
    paired.paired,
    contrast.contrasts,
    findings.bound_validity,
    findings.winners,
    findings.cost,
    findings.origin,
)


def tables(evaluations: Sequence[Evaluation], paper: bool = False) -> list[Table]:
    """Those that there are figures for; with `paper`, its own rows for these data below ours, marked as quoted."""
    if not evaluations:
        return []
    evaluations = with_distinct_names(evaluations)
    built = [build(evaluations) for build in _BUILDERS]
    data = evaluations[0].data.name
    return [_quoting(table, data) if paper else table for table in built if table.rows]


def _quoting(table: Table, data: str) -> Table:
    quoted = paper.rows(table.key, data)
    if not quoted:
        return table
    return replace(table, rows=(*table.rows, *quoted), caption=f"{table.caption} {paper.REMARKS[table.key]}")
