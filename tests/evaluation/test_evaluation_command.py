"""What `gradreg evaluate` leaves, says and returns."""

import csv
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import save_model

from gradreg.cli import evaluate as command
from gradreg.cli.parsing import parse
from gradreg.diagnosis import Flag
from gradreg.evaluation import load
from gradreg.models import build

MODULE = "from torch import nn\ndef net(classes): return nn.Sequential(nn.Flatten(), nn.Linear(784, classes))\n"
PROOF = Flag("certificate-contradicted", "error", {"value": 1}, "One of 5 images.", "Look at it.")
PASSED = Flag("single-step-wins", "info", {"n": 5}, "None of 5.")


@pytest.fixture
def weights(tmp_path: Path) -> str:
    model = build("small", classes=10, channels=1)
    save_model(model, str(tmp_path / "digits.safetensors"))
    return str(tmp_path / "digits.safetensors")


def carry_out(model: str, flags: list[Flag], monkeypatch: pytest.MonkeyPatch, **changes: Any) -> tuple[int, str]:
    """What the command returns and says; options are given as on the command line."""
    text = StringIO()
    monkeypatch.setattr("gradreg.evaluation.stages.diagnosis.diagnose", lambda *_, **__: flags)
    console = changes.pop("console", Console(file=text, width=300))
    options = {"data": "mnist5k", "threat": "linf", "images": 2, "attacks": "fmn,deepfool", "regularity": "local"}
    options |= {"samples": 100, "device": "cpu", "architecture": "small", **changes}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    with pytest.raises(SystemExit) as stop:
        parse(command.Evaluate, "gradreg evaluate", [model, *arguments]).run(console)
    assert isinstance(stop.value.code, int)
    return stop.value.code, text.getvalue()


def test_files_words_and_status(weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = carry_out(weights, [PASSED], monkeypatch, smoothing="0.25, 0.5")
    assert status == 0
    found = load(tmp_path / "evaluations" / "digits")
    assert len(found) == 2
    assert found.clean is not None
    assert found.clean[1] == 1000
    assert [smoothed.sigma for smoothed in found.smoothing] == [0.25, 0.5]
    lines = said.splitlines()
    assert lines[0].startswith("attacks linf: mean distance ")
    assert "robust accuracy at 0.1: " in lines[0]
    assert "(n = 2)" in lines[0]
    assert lines[1].startswith("bounds linf: mean L-bound ")
    assert lines[2].startswith(
        "  calibrated: none. Half of the images calibrates the other half. alpha = 0.05 needs at "
    )
    assert lines[3] == "diagnosis linf: 1 tests, 0 with a finding"
    assert lines[4].startswith("smoothing σ = 0.25: ")
    assert lines[-1] == "The evaluation is in evaluations/digits."


def test_a_terminal_sees_bars(weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = StringIO()
    console = Console(file=text, width=300, force_terminal=True)
    carry_out(weights, [PASSED], monkeypatch, out=tmp_path / "out", console=console, smoothing="0.25")
    for stage in ("attacks linf", "bounds linf", "diagnosis linf", "smoothing 0.25"):
        assert stage in text.getvalue()
    assert "2/2" in text.getvalue()


def test_a_proven_bug_has_a_status_of_its_own(weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = carry_out(weights, [PASSED, PROOF], monkeypatch, out=tmp_path / "out")
    assert status == 3
    assert "error: certificate-contradicted: One of 5 images. Look at it." in said
    assert load(tmp_path / "out").threats["linf"].flags == (PASSED, PROOF)


def test_an_interruption_says_how_to_go_on(weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "evaluate", interrupted)
    status, said = carry_out(weights, [], monkeypatch, out=tmp_path / "out")
    assert status == 130
    assert said == f"Interrupted; the same command continues from {tmp_path / 'out'}.\n"


def test_where_results_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command._default_folder(str(tmp_path)) == tmp_path / "evaluation"
    (tmp_path / "config.toml").write_text("")
    assert command._default_folder(str(tmp_path / "last.safetensors")) == tmp_path / "evaluation-last"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "names", lambda: ["shipped"])
    (tmp_path / "shipped").mkdir()
    assert command._default_folder("shipped") == Path("evaluations/shipped"), "the folder is no run"
    assert command._default_folder("deep/er/best.safetensors") == Path("evaluations/best")
    assert command._default_folder("timm:resnet50.a1_in1k") == Path("evaluations/timm-resnet50.a1_in1k")
    assert command._default_folder("../my.module:net") == Path("evaluations/..-my.module-net")


@pytest.mark.slow
def test_torchrun_writes_what_one_process_writes(weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = "--data mnist5k --threat l2 --images 9 --attacks fmn,deepfool --regularity local --smoothing 0.25"
    options += " --samples 100 --device cpu --batch-size 4 --architecture small"
    outputs = []
    for processes in (1, 2):
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
        what = ["-m", "gradreg", "evaluate", weights, *options.split(), "--out", str(tmp_path / str(processes))]
        done = subprocess.run([sys.executable, *launch, *what], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[1].count("attacks l2") == 1
    tables = []
    for processes in (1, 2):
        with (tmp_path / str(processes) / "images.csv").open(newline="") as file:
            tables.append(list(csv.DictReader(file)))
    for one, two in zip(*tables, strict=True):
        assert one["l2.winner"] == two["l2.winner"]
        assert abs(float(one["l2.distance"]) - float(two["l2.distance"])) < 1e-5
        assert one["smoothing[0.25].samples"] == two["smoothing[0.25].samples"]
    assert torch.equal(load(tmp_path / "1").index, load(tmp_path / "2").index)
