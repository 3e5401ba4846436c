"""How the tests build the site: as `make docs` does, with warnings as errors."""

import os
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).parents[1]


def build(source: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    """Sphinx over a folder of pages."""
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", str(source), str(target)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def shared(base: Path) -> Path:
    """The built site, made once for all processes that run tests; `base` is pytest's folder of this one."""
    place = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, said = place / "site", place / "site.txt"
    with FileLock(place / "site.lock"):
        if not said.exists():
            done = build(ROOT / "docs", folder)
            said.write_text(f"{done.stderr}\nstatus {done.returncode}")
    assert said.read_text().endswith("status 0"), said.read_text()
    return folder
