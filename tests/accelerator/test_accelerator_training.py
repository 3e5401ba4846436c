"""Training on the pretended device: the host's weights, host loaders, checkpoints of either place, and few waits."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gradreg
from accelerator.accelerated import HOST, Dropped, assert_same, images, network, on, places
from accelerator.pretended import OnDevice, without_doubles
from accelerator.waits import watching
from gradreg.data import Images
from gradreg.objectives import OBJECTIVES, Moment, Outcome, Undefended
from gradreg.runs.checkpoints import Generations
from gradreg.training import Fitted, fit

SETTINGS: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 8,
    "held_out": 8,
    "optimizer": {"name": "sgd", "lr": 0.05},
    "probe": {"threat": "l2", "eps": 0.3, "steps": 2, "images": 6},
    "save_minutes": 1000,
}
OBJECTIVE: dict[str, dict[str, Any]] = {
    "undefended": {},
    "gradient": {"threat": "linf", "eps": 4 / 255},
    "adversarial": {"threat": "linf", "eps": 4 / 255, "steps": 2},
    "fgsm-rs": {"eps": 4 / 255},
    "n-fgsm": {"eps": 4 / 255},
    "trades": {"eps": 4 / 255, "steps": 2},
    "noise": {"sigma": 0.1},
}


def pixels(count: int = 40) -> Images:
    source = torch._C.Generator().manual_seed(4)
    x = torch.randint(0, 256, (count, 3, 8, 8), generator=source, dtype=torch.uint8)
    return Images(x, torch.arange(count) % 5, tuple("abcde"), source="noise")


def learner() -> nn.Module:
    return network(nn.BatchNorm2d(6), Dropped()).float().train()


def trained(place: torch.device, data: Any = None, **changes: Any) -> tuple[Fitted, nn.Module]:
    model = on(place, learner())
    return fit(model, data or pixels(), **(SETTINGS | changes)), model


def kept(fitted: Fitted) -> list[dict[str, Any]]:
    """The metrics that are not about the machine."""
    machine = ("images_per_second", "hours", "machine", "commit")
    return [{name: value for name, value in row.items() if name not in machine} for row in fitted.metrics]


def same_runs(**changes: Any) -> None:
    (here, model_here), (there, model_there) = (trained(place, **changes) for place in places())
    assert_same(dict(model_there.state_dict()), dict(model_here.state_dict()))
    assert_same(kept(there), kept(here))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_epoch_of_each_objective_is_the_host_s(name: str) -> None:
    same_runs(objective={"name": name, **OBJECTIVE.get(name, {})})


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"name": "adamw", "lr": 1e-3}, "ema": 0.9, "clip_norm": 1.0, "label_smoothing": 0.1},
        {"optimizer": {"name": "muon"}},
        {"accumulate": 2, "augment": ("crop", "flip", {"name": "cutout", "size": 3})},
        {"objective": {"name": "gradient", "eps": 0.3, "lazy": 2, "jitter": "step"}, "channels_last": True},
        {"objective": {"name": "adversarial", "steps": 2, "stop_early": True, "bn": "frozen"}},
    ],
    ids=["averaged", "muon", "augmented", "lazy", "stopped early"],
)
def test_settings_mean_the_same(changes: dict[str, Any]) -> None:
    same_runs(**changes)


def test_images_and_labels_of_the_host_are_moved() -> None:
    x, y = images(24)
    (here, _), (there, model) = (trained(place, data=(x.float(), y), held_out=8) for place in places())
    assert_same(kept(there), kept(here))
    assert all(isinstance(weight, OnDevice) for weight in model.parameters())


def test_batches_of_host_loaders_are_moved(device: torch.device) -> None:
    x, y = images(24)
    batches = [DataLoader(TensorDataset(x.float(), y), batch_size=8, shuffle=train) for train in (True, False)]
    (here, _), (there, model) = (trained(place, data=tuple(batches)) for place in places())
    assert_same(kept(there), kept(here))
    assert all(isinstance(weight, OnDevice) for weight in model.parameters())


def test_a_run_that_was_begun_on_the_host_goes_on_there(tmp_path: Path, device: torch.device) -> None:
    run = tmp_path / "run"
    whole, _ = trained(HOST, run=run, epochs=2)
    last = load_file(run / "last.safetensors")
    Generations(run).paths()[0].unlink()
    resumed, _ = trained(device, run=run, epochs=2, resume=True)
    assert_same(kept(resumed), kept(whole))
    assert_same(load_file(run / "last.safetensors"), last, place=HOST)


def test_steps_wait_only_where_they_are_checked(device: torch.device) -> None:
    """Every ten steps the loss is looked at; the batches come without waiting."""
    waited: list[int] = []

    class Noted(Undefended):
        def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
            waited.append(len(waits))
            return super().__call__(model, x, y, at)

    with watching() as waits:
        trained(device, data=pixels(200), objective=Noted(), augment=("crop", "flip"))
    between = [after - before for before, after in pairwise(waited)]
    assert len(between) == 23
    assert [step for step, count in enumerate(between, 1) if count] == [10, 20], waits
    assert sum(between) == 2


def test_a_device_without_doubles_trains_and_is_attacked(device: torch.device) -> None:
    x, y = images()
    here = gradreg.attack(network().float(), x.float(), y, attacks="quick")
    with without_doubles():
        fitted, _ = trained(device, objective={"name": "gradient", "eps": 0.3})
        there = gradreg.attack(on(device, network().float()), *on(device, x.float(), y), attacks="quick")
        assert there.robust_accuracy(0.1) == here.robust_accuracy(0.1)
        with pytest.raises(TypeError, match="float64"):
            torch.zeros(2, device=device).double()
    assert len(fitted.metrics) == 1


def test_low_precision_is_asked_of_the_device(device: torch.device) -> None:
    """Autocast has no kernels here, so its name is all that is tried."""
    fitted, _ = trained(device, objective={"name": "gradient", "eps": 0.3}, amp="bf16")
    assert fitted.metrics[0]["probe"] is not None
