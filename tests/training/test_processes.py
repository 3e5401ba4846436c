"""Several processes give what one gives on the joint batch."""

import json
import os
import socket
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from safetensors.torch import load_file
from tiny import digits
from torch import nn
from torch.multiprocessing.spawn import start_processes
from torch.testing import assert_close

from gradreg.data import ImageFolder, load
from gradreg.data.decode import Decoder, rectangle
from gradreg.errors import ConfigError
from gradreg.processes import Processes, leave
from gradreg.runs import Config, Probe, Settings
from gradreg.training import EpochEnd, JSONLLogger, fit
from gradreg.training.monitors import HeldOutMetrics, evaluate_held_out
from gradreg.training.sources import from_config

OBJECTIVES: dict[str, dict[str, Any]] = {
    "undefended": {"name": "undefended"},
    "gradient": {"name": "gradient", "threat": "l2", "eps": 1.0, "h": 0.1, "h_jitter": 0.5},
    "adversarial": {"name": "adversarial", "threat": "l2", "eps": 0.5, "steps": 3},
    "second step": {"name": "gradient", "eps": 0.5, "noise": 0.5, "second_step": 0.98, "alignment": True},
    "label-start": {"name": "label-start", "eps": 0.05, "every": 4, "weight": 1.0, "smoothing": 0.2},
    "free": {"name": "free", "threat": "l2", "eps": 0.5, "replays": 3},
    "prior-guided": {"name": "prior-guided", "threat": "l2", "eps": 0.5, "weight": 0.1},
}
ACCUMULATED = ("adversarial", "prior-guided")


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(196, 16), nn.GELU(), nn.Linear(16, 10))


def run(folder: Path, objective: str, network: Callable[[], nn.Module] = perceptron, **changes: Any) -> None:
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
    for name in ACCUMULATED:
        run(Path(folder) / f"accumulated-{name}", name, accumulate=2)
    found = rectangular_metrics(Path(folder) / "images", Processes(rank, 2, torch.device("cpu")))
    (Path(folder) / f"metrics-{rank}.json").write_text(json.dumps(asdict(found)))
    with pytest.raises(ConfigError, match="batch_size must be divisible by processes × accumulate = 2 × 1; got 15"):
        run(Path(folder) / "uneven", "undefended", batch_size=15)
    heard(rank, Path(folder))
    leave()


def heard(rank: int, folder: Path) -> None:
    """One process asks to stop and all do; callbacks are called in each, and a logger in the first."""
    called: list[int] = []

    def on_epoch(at: EpochEnd) -> None:
        called.append(at.epoch)
        if rank == 1:
            at.stop()

    run(folder / "stopped", "undefended", on_epoch=on_epoch, loggers=[JSONLLogger(folder / f"log-{rank}.jsonl")])
    assert called == [1]
    assert (folder / f"log-{rank}.jsonl").exists() is (rank == 0)


def oblong_images(root: Path) -> None:
    """Of many shapes, so that their views fall into several; in colours that are easy and others that are not."""
    dice = np.random.default_rng(0)
    for part in ("train", "val"):
        for label in ("a", "b"):
            (root / part / label).mkdir(parents=True)
            for number in range(10):
                shape = [(40, 40), (90, 40), (40, 90), (50, 45)][number % 4]
                pixels = dice.integers(0, 256, (*shape, 3))
                Image.fromarray(pixels.astype(np.uint8)).save(root / part / label / f"{number}.png")


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return layers.append(nn.Linear(8, 2))


def rectangular_metrics(root: Path, processes: Processes) -> HeldOutMetrics:
    config = Config(
        data=f"folder:{root}",
        model={"name": "compact"},
        size=32,
        workers=0,
        rectangular=True,
        held_out=17,
        batch_size=2,
    )
    source, _ = from_config(config, processes, None)
    probe = Probe("l2", 0.5, steps=2, images=7)
    return evaluate_held_out(convolutions(), source.held_out(0, processes), probe, processes)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_two_processes_follow_the_loss_curve_of_one(tmp_path: Path) -> None:
    oblong_images(tmp_path / "images")
    start_processes(worker, args=(str(tmp_path),), nprocs=2, start_method="forkserver")
    check_rectangular_metricss(tmp_path)
    assert [row["epoch"] for row in metrics(tmp_path / "stopped")] == [1]
    for name in OBJECTIVES:
        run(tmp_path / name, name)
    both = [*((name, f"two-{name}") for name in OBJECTIVES), *((name, f"accumulated-{name}") for name in ACCUMULATED)]
    for name, other in both:
        one, two = metrics(tmp_path / name), metrics(tmp_path / other)
        for key in ("loss", "train_accuracy", "clean", "held_out_loss", "probe", "grad_norm", "grad_norm_max"):
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


def check_rectangular_metricss(folder: Path) -> None:
    """Two processes read what one reads, which is the mean over the images taken one by one."""
    one = asdict(rectangular_metrics(folder / "images", Processes(0, 1, torch.device("cpu"))))
    for rank in range(2):
        two = json.loads((folder / f"metrics-{rank}.json").read_text())
        assert two.keys() == one.keys()
        for key, value in one.items():
            assert two[key] == pytest.approx(value, rel=1e-5), key
    part = load(f"folder:{folder / 'images'}").train
    assert isinstance(part, ImageFolder)
    _, held = part.split(17, Settings().seed)
    model, shapes, right, losses = convolutions(), set(), 0, 0.0
    for path, label in zip(held.paths, held.labels, strict=True):
        pixels = np.asarray(Decoder(32, rectangular=True).view(path, 0))
        with Image.open(path) as image:
            assert rectangle(*image.size, 32) == (pixels.shape[1], pixels.shape[0])
        shapes.add(pixels.shape)
        with torch.no_grad():
            logits = model(torch.tensor(pixels).permute(2, 0, 1).unsqueeze(0) / 255)
        right += int(logits.argmax() == label)
        losses += nn.functional.cross_entropy(logits, label.unsqueeze(0)).item()
    assert len(shapes) > 2
    assert (one["held_out"], one["probed"]) == (17, 7)
    assert one["clean"] == pytest.approx(right / 17)
    assert one["held_out_loss"] == pytest.approx(losses / 17, rel=1e-5)


def lone_worker(rank: int, folder: str, port: str) -> None:
    """As torchrun would start it."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    run(Path(folder) / "run", "gradient", epochs=1)
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    (Path(folder) / f"threads-{rank}.json").write_text(json.dumps(names))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux shows a process's threads there")
def test_no_thread_of_the_group_outlives_it(tmp_path: Path) -> None:
    """One that did could abort the process at its end: a training that succeeded, and torchrun would call it failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    start_processes(lone_worker, args=(str(tmp_path), port), nprocs=2, start_method="forkserver")
    for rank in range(2):
        names = json.loads((tmp_path / f"threads-{rank}.json").read_text())
        assert names
        assert not [name for name in names if "gloo" in name]
