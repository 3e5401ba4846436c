"""The examples as a user starts them: in a process of their own, or in two by torchrun, in an empty folder."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
ALONE = ("plain_loop.py", "accumulation_amp_ema.py")
COMPILED = ("vit_compiled.py",)
IN_TWO = ("ddp.py", "fsdp2.py")
# Those that need a library which gradreg does not.
WITH_LIBRARIES = (
    "accelerate_bf16.py",
    "fabric.py",
    "hf_trainer.py",
    "lightning_automatic.py",
    "lightning_manual.py",
    "lora.py",
    "ray_train.py",
)
SHARED = ("reference.py",)
QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def run(command: list[str], folder: Path, seconds: int = 300) -> str:
    """What a Python module or script says; what it complains of is shown if it fails."""
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=os.environ | QUIET, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def run_example(name: str, folder: Path) -> str:
    """An example's own words; its assertions are the test."""
    script = str(EXAMPLES / name)
    if name in ALONE:
        return run(["-W", "error", script], folder)
    if name in IN_TWO:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        return run([*launcher, script], folder)
    return run([script], folder)
