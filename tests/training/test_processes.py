"""Several processes give what one gives on the joint batch."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from tiny import digits
from torch import nn
from torch.multiprocessing.spawn import start_processes
from torch.testing import assert_close

from gradreg.errors import ConfigError
from gradreg.training import fit

OBJECTIVES: dict[str, dict[str, Any]] = {
    "undefended": {"name": "undefended"},
    "gradient": {"name": "gradient", "threat": "l2", "eps": 1.0, "h": 0.1, "h_jitter": 0.5},
    "adversarial": {"name": "adversarial", "threat": "l2", "eps": 0.5, "steps": 3},
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 16), nn.GELU(), nn.Linear(16, 10))


def run(folder: Path, objective: str, **changes: Any) -> None:
    settings: dict[str, Any] = {
        "epochs": 3,
        "batch_size": 16,
        "optimizer": {"name": "sgd", "lr": 0.05},
        "probe": {"threat": "l2", "eps": 0.5, "steps": 2, "images": 20},
        "held_out": 20,
    }
    fit(network(), digits(84), OBJECTIVES[objective], run=folder, **(settings | changes))


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for name in OBJECTIVES:
        run(Path(folder) / f"two-{name}", name)
    run(Path(folder) / "accumulated", "adversarial", accumulate=2)
    with pytest.raises(ConfigError, match="sync_bn = true needs CUDA"):
        run(Path(folder) / "synchronised", "undefended", sync_bn=True)
    with pytest.raises(ConfigError, match="batch_size is 15, which 2 processes with accumulate = 1"):
        run(Path(folder) / "uneven", "undefended", batch_size=15)
    dist.destroy_process_group()


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_two_processes_follow_the_loss_curve_of_one(tmp_path: Path) -> None:
    start_processes(worker, args=(str(tmp_path),), nprocs=2, start_method="forkserver")
    for name in OBJECTIVES:
        run(tmp_path / name, name)
    for name, other in [*((name, f"two-{name}") for name in OBJECTIVES), ("adversarial", "accumulated")]:
        one, two = metrics(tmp_path / name), metrics(tmp_path / other)
        for key in ("loss", "train_accuracy", "clean", "held_out_loss", "grad_norm", "grad_norm_max"):
            curves = [[row[key] for row in rows] for rows in (one, two)]
            assert_close(*curves, rtol=1e-5, atol=1e-5, msg=f"{other}: {key} differs, {curves}")
        a, b = load_file(tmp_path / name / "last.safetensors"), load_file(tmp_path / other / "last.safetensors")
        for weight in a:
            assert_close(a[weight], b[weight], rtol=1e-4, atol=1e-5)

    # Two processes leave off after an epoch, one goes on: drop the later checkpoints and resume alone.
    whole, part = tmp_path / "two-adversarial", sorted((tmp_path / "two-adversarial").glob("state-*"))
    part[-1].unlink()
    run(whole, "adversarial", resume=True)
    a, b = load_file(tmp_path / "adversarial" / "last.safetensors"), load_file(whole / "last.safetensors")
    for weight in a:
        assert_close(a[weight], b[weight], rtol=1e-4, atol=1e-5)
    assert [row["epoch"] for row in metrics(whole)] == [1, 2, 3]
