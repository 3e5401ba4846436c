"""Commands that are killed at random instants lose nothing; and what the campaign notices."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from kill_campaign import Outcome, Peace, chain
from kill_works import Work, kept
from torch import zeros

from gradreg import storage

HERE = Path(__file__).parent

# Commands that count to 30 in a file, one number per line, and go on where the file ends.
COUNT = """
import sys, time
from pathlib import Path
path, aside = Path("numbers"), Path("aside")
done = path.read_text().split() if path.exists() else []
for number in range(len(done), 30):
    time.sleep(0.005)
    aside.write_text("".join(f"{n}\\n" for n in range(number + 1)))
    aside.replace(path)
"""
FORGETS = COUNT.replace("range(number + 1)", "range(bool(done), number + 1)")
OTHERS: dict[str, tuple[str, set[str]]] = {
    "right": (COUNT, set()),
    "forgets": (FORGETS, {"lost", "result"}),
    "chatty": (f"{COUNT}print('one\\ntwo', file=sys.stderr)", {"said"}),
    "fails": (f"{COUNT}sys.exit(bool(done))", {"status"}),
}


def work(code: str) -> Work:
    def command(folder: Path) -> Sequence[str]:
        return [sys.executable, "-S", "-c", code]

    def numbers(folder: Path) -> list[str]:
        return (folder / "numbers").read_text().split() if (folder / "numbers").exists() else []

    return Work("count", command, numbers, lambda folder: set(numbers(folder)))


@pytest.mark.parametrize("name", OTHERS)
def test_the_campaign_sees_what_is_lost_said_or_different(name: str, tmp_path: Path) -> None:
    code, kinds = OTHERS[name]
    peace, outcome = Peace.of(work(code), tmp_path / "undisturbed"), Outcome()
    for turn in range(6):
        chain(peace, f"0 {turn}", tmp_path / str(turn), outcome, 10)
    assert outcome.kills > 0
    assert set(outcome.kinds) <= kinds, outcome.failures
    assert bool(outcome.kinds) == bool(kinds)


def test_what_was_not_renamed_to_its_place_is_not_kept(tmp_path: Path) -> None:
    name = "state-000000007.safetensors"
    for folder in (tmp_path / "run", tmp_path / "run" / f".{name}.{'0a' * 16}"):
        folder.mkdir()
        assert kept(tmp_path) == (set() if folder.name == "run" else {f"run step {step}" for step in range(8)})
        storage.write(folder / name, "a checkpoint", {"x": zeros(1)}, {})
    assert kept(tmp_path) == {f"run step {step}" for step in range(8)}


@pytest.mark.slow
def test_a_hundred_kills(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "kill_campaign.py"), "--kills", "100", "--seed", "0"]
    done = subprocess.run([*command, "--json", str(tmp_path / "outcome.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    found = json.loads((tmp_path / "outcome.json").read_text())
    assert (found["kills"], found["failures"]) == (100, [])
    assert min(found["by_work"][name] for name in ("train", "evaluate", "report", "demo")) > 10
