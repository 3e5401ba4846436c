"""What `python -m bench claims --json FILE` found, as the table of docs/claims.md."""

import json
from pathlib import Path

from docs.make.measured import written_by
from gradreg.report.tables.cells import word
from gradreg.report.tables.layout import Column, Row, Table

_WORDS = {"holds": "hold here", "does not hold": "do not", "only there": "could not be repeated"}


def claims_table(path: Path) -> Table:
    """One row per claim of the paper."""
    with written_by("claims", path):
        found = json.loads(path.read_text("utf-8"))
        rows = tuple(
            Row(
                f"{each['says']} ({each['where']})",
                (word(each["measured"]), word(each["verdict"]), word(each["key"])),
            )
            for each in found["claims"]
        )
        verdicts = [each["verdict"] for each in found["claims"]]
        machine = found["machine"]
        where = f"torch {machine['torch']}, {machine['processor']}, commit {machine['commit']}"
    counts = ", ".join(f"{verdicts.count(kind)} {words}" for kind, words in _WORDS.items())
    return Table(
        "claims",
        "The paper's claims",
        f"Of {len(verdicts)} claims: {counts}. By `python -m bench claims --only KEY`, with {where}.",
        (
            Column("measured here", "What the command found."),
            Column("verdict", "Whether the claim holds here."),
            Column("key", "The name of the claim on the command line."),
        ),
        rows,
        of="claim",
    )
