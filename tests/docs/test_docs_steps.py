"""The table of what a step costs, from a file of `python -m bench training`."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from bench.options import TrainingOptions
from bench.training import show
from docs.make.fill import fill
from docs.make.steps import steps_table
from gradreg.errors import ConfigError, DataError


def test_the_table_shows_what_the_command_wrote(tmp_path: Path) -> None:
    file = tmp_path / "training.json"
    show(TrainingOptions(model="small", batch_size=4, rounds=1, json=file), Console(quiet=True))
    written = {each["name"]: each for each in json.loads(file.read_text())["costs"]}
    table = steps_table(file)
    rows = {row.name: [cell.value for cell in row.cells] for row in table.rows}
    assert "plain" not in rows
    assert "data loading" not in rows
    assert rows["penalty"] == [written["penalty"][key] for key in ("seconds", "flops", "memory")]
    assert rows["penalty"][1] == pytest.approx(2, abs=0.02)
    assert "small network (batch 4, best of 1 interleaved rounds, seed 0)" in table.caption
    (tmp_path / "pyproject.toml").touch()
    page = tmp_path / "page.md"
    page.write_text("<!-- gradreg: steps from training.json -->\n<!-- gradreg: end -->\n")
    assert fill(page)
    assert "| step | time | FLOPs | peak memory |" in page.read_text()


@pytest.mark.parametrize("content", ["{}", "[]", "no json", '{"options": {}, "machine": {}, "costs": [{"x": 1}]}'])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(DataError, match=r"must be a file that `python -m bench training --json` wrote"):
        steps_table(file)


def test_figures_need_a_folder_to_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written: there is no folder"):
        TrainingOptions(json=tmp_path / "none" / "training.json")
