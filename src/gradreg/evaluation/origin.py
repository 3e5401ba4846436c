"""Which code on which machine an evaluation stands for."""

import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import torch

import gradreg
from gradreg.bench.record import machine
from gradreg.evaluation.record import Origin


def origin(device: torch.device) -> Origin:
    """This code on this machine, now."""
    processor = str(machine()["processor"])
    name = f"{torch.cuda.get_device_name(device)}; {processor}" if device.type == "cuda" else processor
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Origin(gradreg.__version__, torch.__version__, commit(), name, now)


@cache
def commit() -> str:
    """The checkout that this package lies in, if it is gradreg's own and not one that merely holds an environment."""
    package = Path(__file__).resolve().parents[1]
    top = _git(package, "rev-parse", "--show-toplevel")
    if not top or Path(top) / "src" / "gradreg" != package:
        return ""
    changed = _git(package, "status", "--porcelain", "--", ".")
    return _git(package, "rev-parse", "--short", "HEAD") + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
