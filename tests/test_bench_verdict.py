"""Verdicts over whole test sets: those of a linear network, box included, are known in closed form."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from attack_peers import linear
from bench import verdict as measured
from bench.__main__ import main
from bench.verdict import BROKEN, ROBUST, WRONG, show
from bench.verdict_options import VerdictOptions
from gradreg.attacks import AttackResult, attack
from gradreg.config import tables
from gradreg.data import Images, load
from gradreg.errors import ConfigError
from gradreg.processes import joined
from gradreg.runs import Config, RunDirectory, open_model
from gradreg.training.sources import from_config

EPS, IMAGES = 0.06, 40
MODEL = {"name": f"{__name__}:nearest_mean", "classes": 10, "channels": 1}
RECIPE = {"data": "mnist5k", "model": MODEL, "epochs": 1, "held_out": 60, "seed": 3}


def nearest_mean(classes: int = 10, channels: int = 1) -> nn.Module:
    """Linear: the class whose mean image, over 1,000 digits, is the nearest."""
    train = load("mnist5k").train
    assert isinstance(train, Images)
    x, y = train.floats(slice(1000)).flatten(1), train.labels[:1000]
    means = torch.stack([x[y == label].mean(0) for label in range(classes)])
    return linear(means, -means.square().sum(1) / 2)


def exact(model: nn.Module, x: Tensor, y: Tensor) -> str:
    """A pixel goes as far as ε and the box let it, against the difference of two classes' weights."""
    layer = model[-1]  # type: ignore[index]
    weight, bias = layer.weight.double(), layer.bias.double()
    x = x.flatten(1).double()
    logits = x @ weight.T + bias
    letters = []
    for image, label, scores in zip(x, y.tolist(), logits, strict=True):
        apart = weight[label] - weight
        room = torch.where(apart > 0, image, 1 - image).clamp(max=EPS)
        margin = scores[label] - scores
        least = (margin - (apart.abs() * room).sum(1))[torch.arange(len(weight)) != label].min()
        assert least.abs() > 1e-3, "no verdict here hangs on rounding"
        right = bool((margin[torch.arange(len(weight)) != label] > 0).all())
        letters.append(WRONG if not right else ROBUST if least > 0 else BROKEN)
    return "".join(letters)


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VerdictOptions:
    """Of a run whose network is linear; what the run names is trusted, as it is code of this file."""
    monkeypatch.setattr(measured, "open_model", partial(open_model, trust=True))
    run = RunDirectory(tmp_path / "straight")
    run.start(tables.plain(tables.build(Config, RECIPE)))
    row = {"epoch": 1, "hours": 0.25, "machine": "A, 2 cores"}
    run.add_metrics(row)
    run.save_weights("best", nearest_mean().state_dict(), row)
    return VerdictOptions(
        runs=(run.folder,), out=tmp_path / "out", eps=str(EPS), images=IMAGES, chunk=20, work=tmp_path / "work"
    )


def judged(options: VerdictOptions) -> dict[str, object]:
    show(options, Console(quiet=True))
    found: dict[str, object] = json.loads((options.out / "straight.json").read_text())
    return found


def counted(monkeypatch: pytest.MonkeyPatch, stop_at: int = 99) -> list[int]:
    """How many images each call attacks; the machine dies in the call of that number."""
    calls: list[int] = []

    def watched(model: nn.Module, x: Tensor, *others: object, **named: object) -> AttackResult:
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        calls.append(len(x))
        return attack(model, x, *others, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(measured, "attack", watched)
    return calls


def test_verdicts_are_those_of_the_closed_form(options: VerdictOptions) -> None:
    found = judged(options)
    test = load("mnist5k").test
    assert isinstance(test, Images)
    letters = exact(nearest_mean(), test.floats(slice(IMAGES)), test.labels[:IMAGES])
    assert found["verdicts"] == letters
    assert min(letters.count(letter) for letter in (WRONG, BROKEN, ROBUST)) >= 5, "each kind is there to be confused"
    assert found["n"] == IMAGES
    assert found["clean"] == pytest.approx(1 - letters.count(WRONG) / IMAGES)
    assert found["robust"] == pytest.approx(letters.count(ROBUST) / IMAGES)
    assert (found["hours"], found["trained on"], found["epochs"]) == (0.25, "A, 2 cores", 1)
    assert found["recipe"]["held_out"] == 60  # type: ignore[index]
    assert found["options"]["eps"] == str(EPS)  # type: ignore[index]


def test_interrupted_it_goes_on_and_finds_the_same(options: VerdictOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(options, images=12, chunk=5)
    whole = judged(replace(options, out=options.out / "whole", work=None))
    assert counted(monkeypatch, stop_at=2) == []
    with pytest.raises(KeyboardInterrupt):
        judged(options)
    assert not (options.out / "straight.json").exists()
    calls = counted(monkeypatch)
    again = judged(options)
    assert calls == [2], "the parts of five that were finished are not attacked again"
    assert again | {"seconds": 0} == whole | {"seconds": 0}


def test_a_record_that_is_there_is_not_made_again(options: VerdictOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    first = judged(replace(options, images=2))
    calls = counted(monkeypatch)
    assert judged(options) == first
    assert calls == []


def test_held_out_images_are_those_that_training_held_out(
    options: VerdictOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Tensor, Tensor]] = []

    def all_robust(model: nn.Module, x: Tensor, y: Tensor, *_: object, **named: object) -> AttackResult:
        seen.append((x, y))
        none = torch.zeros_like(y)
        return AttackResult(torch.full((len(x),), torch.inf), x, ("",) * len(x), none, none, "linf")

    monkeypatch.setattr(measured, "attack", all_robust)
    found = judged(replace(options, split="held-out", images=10_000))
    assert (found["n"], found["images"]) == (60, "held out of training: 60, seed 3")
    with joined("cpu") as processes:
        source, _ = from_config(tables.build(Config, RECIPE), processes, None)
        batches = list(source.held_out(0, processes))
    for which in (0, 1):
        assert torch.equal(_whole(seen, which), torch.cat([batch[which] for batch in batches]))


def test_other_images_than_those_judged_so_far_are_refused(options: VerdictOptions) -> None:
    judged(replace(options, images=2))
    with pytest.raises(ConfigError, match="was begun with other images"):
        judged(replace(options, images=3, out=options.out / "more"))


def test_a_radius_that_is_none_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for eps in ("0", "eight"):
        with pytest.raises(SystemExit):
            main(["verdict", "run", "--out", "out", "--eps", eps])
        assert capsys.readouterr().err == f"bench: eps must be a number above 0, as 8/255; got '{eps}'.\n"


def test_no_run_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["verdict", "--out", "out"])
    assert capsys.readouterr().err == "bench: Pass one run directory of `gradreg train` or more.\n"


def _whole(parts: Sequence[tuple[Tensor, Tensor]], which: int) -> Tensor:
    return torch.cat([part[which] for part in parts])
