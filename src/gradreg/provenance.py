"""The code and the machine that a result comes from."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch


def machine() -> dict[str, object]:
    """What run times depend on, and the commit (empty outside of a checkout)."""
    return {
        "processor": processor(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "commit": commit(),
    }


def hardware(device: torch.device) -> str:
    """The hardware behind a device: the accelerator, if it is one, and the processor."""
    if device.type == "cpu":
        return processor()
    name = getattr(torch.get_device_module(device), "get_device_name", lambda _: device.type)(device)
    return f"{name}; {processor()}"


def processor() -> str:
    """The processor's name and core count; read from /proc on Linux, where `platform.processor` is empty."""
    names = Path("/proc/cpuinfo")
    lines = names.read_text(encoding="utf-8").splitlines() if names.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return f"{next(named, platform.processor())}, {os.cpu_count()} cores"


@cache
def commit() -> str:
    """The commit of gradreg's own checkout, with a + if files changed; empty for an installed package."""
    package = Path(__file__).resolve().parent
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
