"""Commands that the campaign kills: what they start from, what they make, and what a kill must not take away."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from gradreg import storage
from gradreg.evaluation import load
from gradreg.writing import is_temporary

GRADREG = (sys.executable, "-m", "gradreg")
TIMES = ("checksum", "created", "seconds", "hours", "images_per_second")
TRAIN = ("epochs=4", "held_out=3700", "probe.images=20", "batch_size=50", "save_minutes=0")
EVALUATE = ("--images", "8", "--attacks", "quick", "--calibration-images", "60", "--smoothing", "0.5", "--no-diagnosis")
OLD_PAGE = "an older report"


@dataclass(frozen=True)
class Work:
    """One line per command."""

    name: str
    command: Callable[[Path], Sequence[str]]
    """What a user types in that folder, now or again."""
    result: Callable[[Path], Any]
    """What it made, without times."""
    kept: Callable[[Path], set[str]]
    """What is finished so far: none of it may be gone after a kill or a new start. Reads it, so that damage shows."""
    start_from: Path | None = None
    """A folder with what the command needs."""

    def prepare(self, folder: Path) -> None:
        """A fresh folder to work in."""
        shutil.copytree(self.start_from, folder) if self.start_from else folder.mkdir(parents=True)


def train_command(folder: Path) -> Sequence[str]:
    words = [word for each in TRAIN for word in ("--set", each)]
    again = ["--resume"] if (folder / "run" / "config.toml").exists() else []
    return [*GRADREG, "train", "mnist5k-l2", "--run", "run", *words, *again]


def evaluate_command(folder: Path) -> Sequence[str]:
    return [*GRADREG, "evaluate", "run", *EVALUATE]


def report_command(folder: Path) -> Sequence[str]:
    return [*GRADREG, "report", "run/evaluation", "--output", "report.html", "--figures", "figures"]


def demo_command(folder: Path) -> Sequence[str]:
    return [*GRADREG, "demo", "--fast", "--out", "tour", "--epochs", "1", "--images", "4"]


def works(trained: Path, evaluated: Path) -> list[Work]:
    """All of them; they start from a folder with a run, or with a run and its evaluation."""
    return [
        Work("train", train_command, lambda folder: run_result(folder / "run"), lambda folder: kept(folder / "run")),
        Work("evaluate", evaluate_command, lambda f: evaluation_result(f / "run" / "evaluation"), kept, trained),
        Work("report", report_command, report_result, report_kept, evaluated),
        Work("demo", demo_command, demo_result, kept),
    ]


def run_result(run: Path) -> Any:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    weights = {name: storage.read_tensors(run / f"{name}.safetensors", "weights")[0] for name in ("best", "last")}
    tensors = {f"{name} {key}": _digest(value) for name, state in weights.items() for key, value in state.items()}
    return [(run / "config.toml").read_text(), without_times(rows), tensors, litter(run)]


def evaluation_result(folder: Path) -> Any:
    load(folder)  # its checksums are right
    facts = without_times(json.loads((folder / "evaluation.json").read_text()))
    pictures, _ = storage.read_tensors(folder / "gallery.safetensors", "a gallery")
    gallery = {name: _digest(tensor) for name, tensor in pictures.items()}
    facts["files"] = None  # a checksum of the table, which is compared
    return [facts, (folder / "images.csv").read_text(), gallery, litter(folder)]


def report_result(folder: Path) -> Any:
    figures = {path.name: path.stat().st_size > 0 for path in (folder / "figures").iterdir()}
    return [(folder / "report.html").read_text(), figures, litter(folder)]


def demo_result(folder: Path) -> Any:
    runs = sorted(path for path in (folder / "tour").iterdir() if path.is_dir())
    found = {run.name: [run_result(run), evaluation_result(run / "evaluation")] for run in runs}
    return [found, (folder / "tour" / "report.html").stat().st_size > 0, litter(folder)]


def kept(folder: Path) -> set[str]:
    """Steps up to the newest checkpoint, finished parts of evaluations, finished evaluations."""
    found: set[str] = set()
    for path in _in_place(folder, "state-*.safetensors"):
        storage.read_tensors(path, "a checkpoint")
        found |= {f"{path.parent.name} step {step}" for step in range(1 + int(path.stem.removeprefix("state-")))}
    for path in _in_place(folder, "*.done.safetensors"):
        storage.read_tensors(path, "a part")
        found.add(f"{path.relative_to(folder)} {sha256(path.read_bytes()).hexdigest()}")
    for path in _in_place(folder, "evaluation.json"):
        load(path)
        found.add(str(path.relative_to(folder)))
    return found


def _in_place(folder: Path, pattern: str) -> list[Path]:
    """Files that were renamed to their place; a kill right before that leaves one written in its temporary folder."""
    return [path for path in folder.rglob(pattern) if not is_temporary(path.parent)]


def report_kept(folder: Path) -> set[str]:
    """A page is the one of before, or the new one, and always whole."""
    page = (folder / "report.html").read_text()
    assert page == OLD_PAGE or page.rstrip().endswith("</html>"), "half a page"
    return {"a page"}


def litter(folder: Path) -> list[str]:
    """Locks and temporary files that are left at the end."""
    hidden = (path for path in folder.rglob(".*") if path.name != ".state")
    return sorted(str(path.relative_to(folder)) for path in hidden)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def _digest(tensor: Any) -> str:
    return sha256(tensor.contiguous().numpy().tobytes()).hexdigest()
