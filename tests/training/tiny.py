"""Runs that take a fraction of a second: a few real digits and a small network."""

import os
import signal
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradreg.data import Images, load
from gradreg.errors import Interrupted
from gradreg.objectives import Moment, Outcome
from gradreg.training import Fitted, StepEnd, fit

SETTINGS: dict[str, Any] = {
    "objective": {"name": "gradient", "threat": "l2", "eps": 1.0, "h": 0.1, "ramp_epochs": 1},
    "epochs": 3,
    "batch_size": 16,
    "held_out": 20,
    "optimizer": {"name": "adamw", "lr": 3e-3},
    "ema": 0.9,
    "probe": {"threat": "l2", "eps": 1.0, "steps": 2, "images": 10},
    "save_minutes": 0,
}


def digits(count: int = 100) -> Images:
    part = load("mnist5k").train
    assert isinstance(part, Images)
    return part.subset(slice(count))


def network(seed: int = 0) -> nn.Module:
    """With dropout and batch normalisation: what a careless resume would lose."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.AvgPool2d(2),
            nn.Conv2d(1, 8, 3, stride=2),
            nn.BatchNorm2d(8),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Flatten(),
            nn.Linear(8 * 36, 10),
        )


def tiny_fit(run: Path | None = None, **changes: Any) -> Fitted:
    """The tiny run; keywords replace its settings."""
    model = changes.pop("model", None) or network()
    data = changes.pop("data", None) or digits()
    return fit(model, data, run=run, **(SETTINGS | changes))


def weights(run: Path, which: str = "last") -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(run / f"{which}.safetensors")


def same_weights(first: Path, second: Path) -> bool:
    return all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in ((weights(first, which), weights(second, which)) for which in ("last", "best"))
    )


def stopped_after(step: int, run: Path, **changes: Any) -> None:
    """The tiny run, ended by SIGTERM after that step: it has saved."""

    def stop(at: StepEnd) -> None:
        if at.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match=f"step {step} and saved: continue with --resume"):
        tiny_fit(run, on_step=stop, **changes)


# The one server that all processes of these tests are forked from has torch loaded already.
FORKSERVER = get_context("forkserver")
FORKSERVER.set_forkserver_preload(["gradreg.training"])


def in_a_process(target: Callable[..., None], *arguments: Any) -> Any:
    """A started process that can be killed."""
    process = FORKSERVER.Process(target=target, args=arguments)
    process.start()
    return process


def run_or_continue(folder: str) -> None:
    """What a killed process does again and again until the run is over."""
    torch.set_num_threads(1)
    run = Path(folder)
    tiny_fit(run, resume=(run / "config.toml").exists())


class Plain:
    """An objective of a user's own."""

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
        logits = model(x)
        return Outcome(at.criterion(logits, y).mean(), logits.detach())
