"""Work that is killed anywhere goes on where it was, about the same thing, and by one writer at a time."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gradreg.errors import ConfigError, DataError, StorageError
from gradreg.ledger import Ledger, Timer, begun_about, check_same
from gradreg.locks import lock

ABOUT = {"images": "a1", "weights": "b2"}


@dataclass(frozen=True)
class Row:
    name: str
    value: float
    column: Tensor


ROW = Row("one", float("inf"), torch.tensor([1.0, 2.0]))


def test_a_part_is_computed_once_and_comes_back_as_it_was(tmp_path: Path) -> None:
    calls: list[int] = []

    def compute() -> tuple[Row, ...]:
        calls.append(1)
        return (ROW, ROW)

    for _ in range(2):
        with Ledger(tmp_path / "work", ABOUT) as ledger:
            found = ledger.once("rows", tuple[Row, ...], compute)
            assert ledger.finished("rows")
            assert not ledger.finished("others")
            assert ledger.load("others", Row) is None
        assert [row.name for row in found] == ["one", "one"]
        assert found[1].value == float("inf")
        assert torch.equal(found[0].column, ROW.column)
    assert calls == [1]


def test_what_is_begun_about_something_else_is_refused_by_name(tmp_path: Path) -> None:
    with Ledger(tmp_path, ABOUT, noted={"origin": {"commit": "0123abc"}}) as ledger:
        assert ledger.noted == {"origin": {"commit": "0123abc"}}
    with pytest.raises(ConfigError, match=r"begun with other images, other seed; continue"):
        Ledger(tmp_path, {"images": "other", "weights": "b2", "seed": "1"}).__enter__()
    with Ledger(tmp_path, ABOUT, noted={"origin": {"commit": "later"}}) as ledger:
        assert ledger.noted == {"origin": {"commit": "0123abc"}}, "what was noted at the beginning"
    assert begun_about(tmp_path) == {"about": ABOUT, "origin": {"commit": "0123abc"}}
    assert begun_about(tmp_path / "elsewhere") == {}
    check_same(tmp_path, ABOUT, dict(ABOUT))


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    with Ledger(tmp_path, ABOUT) as ledger:
        ledger.save("row", ROW)
        code = (
            "import sys; from pathlib import Path; from gradreg.ledger import Ledger\n"
            f"Ledger(Path(sys.argv[1]), {ABOUT!r}, writes=sys.argv[2] == 'writes').__enter__()"
        )
        for how, status in (("writes", 1), ("reads", 0)):
            done = subprocess.run([sys.executable, "-c", code, str(tmp_path), how], capture_output=True, text=True)
            assert done.returncode == status, done.stderr
            assert ("is being written by process" in done.stderr) == bool(status)
    with Ledger(tmp_path, ABOUT) as again:
        assert again.finished("row")


def test_a_killed_writer_leaves_no_lock_and_no_scraps(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from gradreg.locks import lock\n"
        "lock(Path(sys.argv[1])).__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode != 0
    scrap = tmp_path / f".row.done.safetensors.{'0' * 32}"
    scrap.touch()
    with Ledger(tmp_path, ABOUT), pytest.raises(ConfigError, match="is being written by process"), lock(tmp_path):
        pass
    assert not scrap.exists()


def test_seconds_go_on_where_they_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "attacks.seconds.json").write_text('{"seconds": 100.0}')
    with Ledger(tmp_path, ABOUT) as ledger:
        timer = ledger.timer("attacks")
        assert 100.0 <= timer.seconds < 110.0
        monkeypatch.setattr("gradreg.ledger._EVERY", -1.0)
        seen: list[tuple[int, int]] = []
        timer.watching(lambda done, total: seen.append((done, total)))(3, 7)
        assert seen == [(3, 7)]
    assert json.loads((tmp_path / "attacks.seconds.json").read_text())["seconds"] >= 100.0
    assert Timer(None).seconds < 10.0


def test_without_a_folder_nothing_is_kept() -> None:
    with Ledger(None, ABOUT) as ledger:
        assert ledger.once("row", Row, lambda: ROW) is ROW
        assert not ledger.finished("row")
        assert ledger.path("pool.safetensors") is None
        ledger.drop("*")


def test_damaged_and_foreign_files_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "begun.json").write_text("{")
    with pytest.raises(DataError, match=r"begun.json is not valid JSON: .*; delete the folder"):
        Ledger(tmp_path, ABOUT).__enter__()
    (tmp_path / "begun.json").write_text("[]")
    with pytest.raises(DataError, match="must hold a JSON object; got list; delete the folder"):
        Ledger(tmp_path, ABOUT).__enter__()
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="could not be written"):
        Ledger(tmp_path / "file", ABOUT).__enter__()
    with Ledger(tmp_path / "new", ABOUT) as ledger:
        ledger.save("row", {"name": "no row"})
        with pytest.raises(DataError, match=r"row.done.safetensors is damaged: 'value' is missing; delete it"):
            ledger.load("row", Row)
        ledger.drop("row.*")
        assert not ledger.finished("row")
