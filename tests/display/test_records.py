"""One record per image, for other programs: the same numbers, JSON's own values, columns that say what they hold."""

import csv
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from evaluation_toys import linear, part, quick
from gradreg import attack, certify
from gradreg.attacks import AttackResult
from gradreg.display.records import SCHEMA, Column, Recorded, Records, schema
from gradreg.errors import MissingPackageError
from gradreg.evaluation import Evaluation

TYPES = {"integer": int, "number": (int, float), "boolean": bool, "string": str}


@pytest.fixture(scope="module")
def batch() -> tuple[Tensor, Tensor]:
    found = part(20, seed=5, wrong=2)
    return found.pixels / 255, found.labels


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return quick()


def recorded(kind: str, batch: tuple[Tensor, Tensor], evaluation: Evaluation) -> Recorded:
    if kind == "evaluation":
        return evaluation
    if kind == "attack":
        return attack(linear(), *batch, attacks="quick", eps=[0.05, 0.1])
    return certify(linear(), batch[0], sigma=0.25, n=200)


@pytest.mark.parametrize("kind", ["attack", "certificates", "evaluation"])
def test_records_are_json_and_of_the_types_that_they_say(
    kind: str, batch: tuple[Tensor, Tensor], evaluation: Evaluation
) -> None:
    found = recorded(kind, batch, evaluation).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["schema"], found["kind"]) == (SCHEMA, kind)
    about = schema()
    assert set(found) == set(about["required"])
    units = about["properties"]["columns"]["additionalProperties"]["properties"]["unit"]["enum"]
    assert found["images"]
    for record in found["images"]:
        assert list(record) == list(found["columns"])
        for name, value in record.items():
            column = found["columns"][name]
            assert column.get("unit", units[0]) in units
            assert value is None or type(value) in _kinds(column["type"]), (name, value)
            assert value is not None or "null" in column, name


def _kinds(name: str) -> tuple[type, ...]:
    kinds: Any = TYPES[name]
    return kinds if isinstance(kinds, tuple) else (kinds,)


def test_records_hold_the_results_own_numbers(batch: tuple[Tensor, Tensor]) -> None:
    result = attack(linear(), *batch, attacks="quick", eps=[0.05, 0.1])
    result = replace(result, distance=result.distance.masked_fill(result.distance > 0.1, torch.inf))
    assert not bool(result.success.all())
    found = result.to_dict()
    distance = [math.inf if each["distance"] is None else each["distance"] for each in found["images"]]
    assert torch.equal(torch.tensor(distance), result.distance)
    assert [each["success"] for each in found["images"]] == result.success.tolist()
    assert tuple(each["winner"] for each in found["images"]) == result.winner
    assert sum(each["forwards"] for each in found["images"]) == int(result.forwards.sum())
    assert found["settings"]["eps"] == [0.05, 0.1]


def test_an_evaluations_records_are_its_table(evaluation: Evaluation, tmp_path: Path) -> None:
    """Name by name what images.csv holds; so the page that documents one documents the other."""
    evaluation.save(tmp_path)
    with open(tmp_path / "images.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    found = evaluation.to_dict()["images"]
    assert len(found) == len(rows)
    for record, row in zip(found, rows, strict=True):
        assert list(record) == [name for name in row if row[name] != "" or name.endswith(".winner")]
        for name, value in record.items():
            assert row[name] == value if isinstance(value, str) else value is None or float(row[name]) == float(value)


def test_every_column_is_explained(evaluation: Evaluation) -> None:
    columns = evaluation.records().columns
    assert len({column.about for column in columns.values()}) == len(columns)
    assert not [name for name, column in columns.items() if "in brackets" in column.about]


def test_the_page_has_every_column_with_its_type_and_unit(evaluation: Evaluation) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    rows = [line.split("|")[1:] for line in page.splitlines() if line.startswith("| `")]
    for name, column in evaluation.records().columns.items():
        shown = name.replace("l2.", "T.").replace("[0.25]", "[σ]")
        row = next(row for row in rows if f"`{shown}`" in row[0])
        assert [cell.strip() for cell in row[1:3]] == [column.type, column.unit], name


def test_certificates_of_a_shard_know_their_images(batch: tuple[Tensor, Tensor]) -> None:
    found = certify(linear(), batch[0], sigma=0.25, n=200, shard=(1, 3)).to_dict()
    assert [record["index"] for record in found["images"]] == list(range(1, 20, 3))
    assert found["settings"]["certificate"] == "probabilistic"


def test_without_pandas_the_error_says_what_to_install(
    batch: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackageError, match=r"needs pandas.*gradreg\[pandas\]"):
        attack(linear(), *batch, attacks="quick").to_pandas()


def test_a_frame_is_made_of_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """pandas is asked for a frame of plain lists; the tests with the extra libraries ask the real one."""

    class Frame:
        def __init__(self, columns: dict[str, list[Any]]) -> None:
            self.columns = columns
            self.attrs: dict[str, Any] = {}

    monkeypatch.setitem(sys.modules, "pandas", type("pandas", (), {"DataFrame": Frame}))
    records = Records("attack", {"threat": "l2"}, {"distance": Column("far", torch.tensor([0.5, torch.inf]))})
    frame: Any = records.to_pandas()
    assert frame.columns == {"distance": [0.5, math.inf]}
    assert frame.attrs["threat"] == "l2"


def test_an_empty_result_has_no_records(batch: tuple[Tensor, Tensor]) -> None:
    result: AttackResult = attack(linear(), *batch, attacks="quick").select(torch.zeros(0, dtype=torch.int64))
    assert result.to_dict()["images"] == []
    assert "0 images" in str(result)
