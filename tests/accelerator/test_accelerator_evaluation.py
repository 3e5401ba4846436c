"""A whole evaluation and the commands on the pretended device: the host's record, whatever the data come from."""

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gradreg
from accelerator.accelerated import CLASSES, HOST, assert_same, network, on, places
from accelerator.pretended import NAME
from commands import status
from gradreg.data import DataSet, Images

QUICK: dict[str, Any] = {
    "threat": "l2",
    "images": 8,
    "attacks": "quick",
    "calibration_images": 160,
    "regularity": "ascent",
    "smoothing": (0.1,),
    "samples": 200,
    "radii": (0.02, 0.05),
}


def part(count: int, seed: int) -> Images:
    source = torch._C.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 8, 8), generator=source, dtype=torch.uint8)
    with torch.no_grad():
        labels = network().float()(pixels / 255.0).argmax(1)
    labels[::7] = (labels[::7] + 1) % CLASSES
    return Images(pixels, labels, tuple("abcde"), source=f"noise {seed}")


def data_set() -> DataSet:
    return DataSet("noise", part(160, 1), part(20, 2))


def pairs(images: Images) -> tuple[Tensor, Tensor]:
    return images.floats(torch.arange(len(images))), images.labels


def loader(images: Images) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*pairs(images)), batch_size=16)


def timeless(evaluation: gradreg.Evaluation) -> dict[str, Any]:
    """All that it says, but for how long it took and where."""
    threats = {
        name: replace(
            record,
            attacked=replace(record.attacked, seconds=0.0),
            bounded=record.bounded and replace(record.bounded, seconds=0.0),
        )
        for name, record in evaluation.threats.items()
    }
    smoothing = tuple(replace(one, seconds=0.0) for one in evaluation.smoothing)
    return vars(replace(evaluation, threats=threats, smoothing=smoothing)) | {"origin": None}


def test_an_evaluation_is_the_host_s_and_is_reported(tmp_path: Path) -> None:
    here, there = (
        gradreg.evaluate(on(place, network().float()), data_set(), folder=tmp_path / place.type, **QUICK)
        for place in places()
    )
    # A record lives on the host, like its files.
    assert_same(timeless(there), timeless(here), place=HOST)
    assert here.threats["l2"].bounded is not None
    assert {flag.severity for flag in here.threats["l2"].flags} >= {"info"}
    assert there.origin.machine != here.origin.machine
    gradreg.report([here, replace(there, subject=replace(there.subject, name="there"))], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000


class Noisy(nn.Module):
    """A network behind noise of the host's stream, which every device has."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network().float()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(x + 0.1 * torch.randn(x.shape).to(x.device))
        return found


def test_a_randomised_model_is_asked_again_there_too() -> None:
    quick: dict[str, Any] = {"threat": "l2", "images": 3, "attacks": "quick", "diagnosis": False}
    here, there = (
        gradreg.evaluate(gradreg.Averaged(on(place, Noisy()).eval(), draws=2), pairs(part(20, 2)), **quick)
        for place in places()
    )
    assert here.fresh is not None
    assert_same(there.fresh, here.fresh, place=HOST)
    assert_same(there.threats["l2"].fresh, here.threats["l2"].fresh, place=HOST)


def test_data_may_come_from_anywhere_on_the_host(device: torch.device) -> None:
    quick: dict[str, Any] = {**QUICK, "diagnosis": False, "smoothing": None}
    test, train = part(20, 2), part(160, 1)
    here = gradreg.evaluate(network().float(), pairs(test), calibration=pairs(train), **quick)
    model = on(device, network().float())
    for data, calibration in (
        (loader(test), loader(train)),
        (on(device, *pairs(test)), pairs(train)),
    ):
        there = gradreg.evaluate(
            model, tuple(data) if isinstance(data, list) else data, calibration=calibration, **quick
        )
        assert_same(timeless(there), timeless(here), place=HOST)


def test_work_that_was_begun_on_the_host_goes_on_there(tmp_path: Path, device: torch.device) -> None:
    """Weights, images and settings make the work, not the place."""
    quick = {**QUICK, "smoothing": None, "diagnosis": False}
    here = gradreg.evaluate(network().float(), data_set(), folder=tmp_path / "work", **quick)
    there = gradreg.evaluate(on(device, network().float()), data_set(), folder=tmp_path / "work", **quick)
    assert_same(vars(there), vars(here), place=HOST)


@pytest.mark.parametrize("name", [NAME, "auto"])
def test_commands_take_the_device(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, found = str(tmp_path / "run"), str(tmp_path / "evaluation")
    settings = ["epochs=1", "held_out=3960", "probe.images=5", "batch_size=20", f"device={name}"]
    assert status(["train", "mnist5k-l2", "--run", run, *(each for one in settings for each in ("--set", one))]) == 0
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert row["machine"].startswith("a pretended accelerator; ")
    few = ["--threat", "l2", "--attacks", "quick", "--images", "6", "--calibration-images", "160", "--no-diagnosis"]
    assert status(["evaluate", run, "--out", found, "--device", name, *few]) == 0
    assert json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())["images"] == 6
    picture = str(tmp_path / "image.png")
    attacks = ["--attacks", "deepfool", "--samples", "50"]
    assert status(["inspect", "3", "--model", run, "--output", picture, "--device", name, *attacks]) == 0
    assert status(["diagnose", run, "--images", "10", "--device", name]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err


def test_a_built_network_takes_its_statistics_along(device: torch.device) -> None:
    model, x = gradreg.build("small", classes=5, mean=0.4, std=0.2).eval(), torch.rand(2, 1, 28, 28)
    with torch.no_grad():
        assert_same(on(device, model)(x.to(device)), model(x))


def test_swapped_layers_are_where_the_network_is(device: torch.device) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten())
    x = torch.rand(2, 1, 8, 8)
    moved = gradreg.swap_pooling(gradreg.swap_activations(on(device, model)))
    with torch.no_grad():
        assert_same(moved(x.to(device)), gradreg.swap_pooling(gradreg.swap_activations(model))(x))


def test_every_public_function_is_tried_here() -> None:
    """A new one is to be added: with the host's answers, and a look at how often it looks."""
    texts = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    public = [name for name in dir(gradreg) if inspect.isroutine(getattr(gradreg, name))]
    assert len(public) > 10
    # `load` is tried by the commands; the others take no tensors, or write files from the host's copy of a network.
    untried = [name for name in public if f"gradreg.{name}(" not in texts and f" {name}(" not in texts]
    assert set(untried) <= {"export_onnx", "load", "publish", "threat", "verdict"}
