"""Mutated files of every format: refused in one sentence, or read as what they say; and what the campaign notices."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fuzz_campaign import Outcome, Sample, case
from fuzz_formats import FORMATS
from fuzz_mutations import MUTATIONS
from fuzz_values import Format

from gradreg.errors import DataError
from gradreg.reading import read_text

HERE = Path(__file__).parent


def campaign(cases: int, seed: int, folder: Path) -> dict[str, Any]:
    """In a process of its own, whose memory is limited; with what it said, if it failed."""
    out = folder / "outcome.json"
    command = [sys.executable, str(HERE), "--cases", str(cases), "--seed", str(seed), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def check(found: dict[str, Any], cases: int) -> None:
    assert found["failures"] == []
    assert found["cases"] == cases == found["refused"] + found["unchanged"] + found["read"]
    assert set(found["by_format"]) == {each.name for each in FORMATS}
    assert min(found["refused"], found["unchanged"], found["read"]) > cases / 20, "damage of all kinds was done"
    assert found["memory"] < 700, "MiB more than before"


def test_a_few_hundred_mutated_files(tmp_path: Path) -> None:
    check(campaign(400, seed=0, folder=tmp_path), 400)


@pytest.mark.slow
def test_ten_thousand_mutated_files(tmp_path: Path) -> None:
    check(campaign(12_000, seed=1, folder=tmp_path), 12_000)


# A format whose sealed sample is a number with its own copy as a checksum; the readers below get it wrong.


def make(folder: Path, seed: int) -> None:
    (folder / "n.json").write_text(json.dumps({"n": 7 + seed, "checksum": 7 + seed}))


def right(folder: Path) -> int:
    try:
        content = json.loads(read_text(folder / "n.json"))
        number = int(content["n"])
    except Exception as error:
        raise DataError(f"Damaged: {type(error).__name__}.") from error
    if content.get("checksum", number) != number or not 0 < number < 100:
        raise DataError("Changed.")
    return number


def silent(folder: Path) -> int:
    """Takes any number for the right one."""
    try:
        return int(json.loads(read_text(folder / "n.json"))["n"])
    except Exception as error:
        raise DataError("Damaged.") from error


def foreign(folder: Path) -> int:
    return int(json.loads(read_text(folder / "n.json"))["n"])


def chatty(folder: Path) -> int:
    try:
        return right(folder)
    except DataError as error:
        raise DataError(f"Damaged\nin many lines: {error}") from error


def endless(folder: Path) -> int:
    while True:
        time.sleep(0.01)


def forge(folder: Path) -> None:
    try:
        content = json.loads(read_text(folder / "n.json"))
        (folder / "n.json").write_text(json.dumps({**content, "checksum": content["n"]}))
    except Exception:
        return


def hold(value: int, folder: Path) -> None:
    assert 0 < value < 100


@pytest.mark.parametrize(
    ("reader", "kinds"),
    [(right, set()), (silent, {"accepted"}), (foreign, {"foreign", "accepted"}), (chatty, {"sentence"})],
)
def test_the_campaign_sees_a_reader_that_is_wrong(
    reader: Callable[[Path], int], kinds: set[str], tmp_path: Path
) -> None:
    sample = Sample.of(Format("n", make, right, hold, forge), tmp_path)
    sample = replace(sample, format=replace(sample.format, read=reader))
    outcome = Outcome()
    for turn in range(150):
        case(sample, f"{turn}", tmp_path / "case", outcome)
    assert set(outcome.kinds) == kinds, outcome.failures[:5]


def test_the_campaign_ends_a_reader_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz_campaign.SECONDS", 0.2)
    sample = replace(Sample.of(Format("n", make, right), tmp_path), format=Format("n", make, endless))
    outcome = Outcome()
    case(sample, "0", tmp_path / "case", outcome)
    assert dict(outcome.kinds) == {"hang": 1}


def test_the_same_seed_is_the_same_damage(tmp_path: Path) -> None:
    sample = Sample.of(Format("n", make, right), tmp_path)
    for turn in range(20):
        found = []
        for name in ("one", "two"):
            outcome = Outcome()
            case(
                replace(sample, format=Format("n", make, silent, hold, sealed=True)),
                f"{turn}",
                tmp_path / name,
                outcome,
            )
            found.append([line.replace(name, "") for line in outcome.failures])
        assert found[0] == found[1]


def test_names_of_formats_and_damage_are_distinct() -> None:
    assert len({each.name for each in FORMATS}) == len(FORMATS)
    assert len(MUTATIONS) > 20
