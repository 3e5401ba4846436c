"""AutoAttack beside our attacks: its column, its chunks, and that nothing else changes for it."""

import csv
import json
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from toy_autoattack import install

from evaluation_toys import exact_distance, part, quick, toy
from gradreg.data import Images
from gradreg.errors import ConfigError
from gradreg.evaluation import load
from gradreg.evaluation.reporting import ConsoleReporter
from gradreg.evaluation.stages import confirmation as confirming
from gradreg.smoothing.intervals import clopper_pearson
from handmade import confirmation, confirmed, handmade

TIMES = ("checksum", "created", "seconds")
# Exact distances of the toy's images lie on both sides of these.
L2, LINF = 0.03, 0.008
# Test images alone: without training images there are no bounds to wait for.
LIGHT: dict[str, Any] = {"attacks": ["deepfool"], "smoothing": None, "images": 30, "data": toy().test}
ASKED: dict[str, Any] = {**LIGHT, "threat": ("l2", "linf"), "autoattack": {"l2": [L2], "linf": [LINF]}}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings with which thirty images make four chunks."""
    monkeypatch.setattr(confirming, "_CHUNK", 8)
    return {"batch_size": 8}


def exact(index: Tensor, dual: float) -> Tensor:
    test = toy().test
    assert isinstance(test, Images)
    return exact_distance(test.floats(index), test.labels[index], dual)


def table(folder: Path) -> dict[str, list[str]]:
    with (folder / "images.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def facts(folder: Path) -> Any:
    return without_times(json.loads((folder / "evaluation.json").read_text()))


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def test_robust_is_what_lies_beyond_the_radius(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    random = torch.get_rng_state()
    found = quick(tmp_path, **ASKED)
    assert torch.equal(torch.get_rng_state(), random)
    columns = table(tmp_path)
    for threat, dual, eps in (("l2", 2.0, L2), ("linf", 1.0, LINF)):
        distance = exact(found.index, dual)
        robust = distance > eps
        assert bool((distance - eps).abs().min() > 1e-4)
        assert 5 < int(robust.sum()) < 25
        (reference,) = found.threats[threat].confirmed
        assert torch.equal(reference.robust, robust)
        assert columns[f"{threat}.autoattack[{eps:g}]"] == [str(int(each)) for each in robust]
        # One propagation there and one back, of every image.
        assert (reference.attack, reference.version, reference.eps) == ("autoattack", "standard", eps)
        assert (reference.forwards, reference.backwards) == (1.0, 1.0)
        assert torch.equal(load(tmp_path).threats[threat].confirmed[0].robust, robust)
        assert torch.equal(found.threats[threat].robust(eps), robust)


def test_chunks_are_seeded_each_and_shared_fairly(
    small_chunks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = install(monkeypatch)
    quick(None, **LIGHT, **small_chunks, autoattack={"l2": [L2]}, seed=5)
    assert reference.sizes == [8, 8, 7, 7]
    assert reference.seeds == [5, 13, 21, 28]


def test_a_kill_costs_a_chunk(tmp_path: Path, small_chunks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the third chunk, then at every rename that follows, the files are those of one that was not."""
    reference = install(monkeypatch)
    quick(tmp_path / "whole", **ASKED, **small_chunks)
    assert reference.sizes == [8, 8, 7, 7] * 2
    reference.sizes.clear()
    run, rename, left = reference.run_standard_evaluation, Path.replace, 0

    class Killed(BaseException):
        """Stands for SIGKILL: nothing catches it."""

    def dying(self: Any, *arguments: Any, **options: Any) -> Any:
        if len(self.sizes) == 2:
            raise Killed
        return run(self, *arguments, **options)

    def dying_rename(path: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(reference, "run_standard_evaluation", dying)
        with pytest.raises(Killed):
            quick(tmp_path / "killed", **ASKED, **small_chunks)
    assert len(list((tmp_path / "killed" / ".state").glob("autoattack.l2.*-of-30.done.safetensors"))) == 2
    monkeypatch.setattr(Path, "replace", dying_rename)
    for kills in range(30):
        left = 2 + kills % 3
        try:
            quick(tmp_path / "killed", **ASKED, **small_chunks)
            break
        except Killed:
            continue
    else:
        pytest.fail("It never gets further, so what was finished is not kept.")
    assert kills > 3
    # Each kill came after at most one chunk was computed and not yet saved.
    assert len(reference.sizes) <= 8 + kills
    assert facts(tmp_path / "killed") == facts(tmp_path / "whole")
    assert (tmp_path / "killed" / "images.csv").read_bytes() == (tmp_path / "whole" / "images.csv").read_bytes()
    assert not list((tmp_path / "killed" / ".state").glob("*-of-*"))


def test_it_is_added_to_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call with a radius more runs AutoAttack at that radius and nothing else."""
    folder, whole = tmp_path / "evaluation", LIGHT | {"data": toy(), "regularity": "local"}
    quick(folder, **whole)
    before, plain = table(folder), facts(folder)
    reference = install(monkeypatch)
    monkeypatch.setattr("gradreg.evaluation.stages.attacks.attack", forbidden)
    monkeypatch.setattr("gradreg.evaluation.stages.bounds.estimate_regularity", forbidden)
    quick(folder, **whole, autoattack={"l2": [L2]})
    assert len(reference.sizes) == 1
    after = table(folder)
    assert {name: after[name] for name in before} == before
    assert list(after.keys() - before.keys()) == [f"l2.autoattack[{L2}]"]
    quick(folder, **whole, autoattack={"l2": [L2, 2 * L2]})
    assert len(reference.sizes) == 2
    assert [each.eps for each in load(folder).threats["l2"].confirmed] == [L2, 2 * L2]
    assert table(folder)[f"l2.autoattack[{L2}]"] == after[f"l2.autoattack[{L2}]"]
    # What is finished needs no package, and what is not asked for is not in the file.
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    assert len(quick(folder, **whole, autoattack={"l2": [2 * L2]}).threats["l2"].confirmed) == 1
    quick(folder, **whole)
    assert (table(folder), facts(folder)) == (before, plain)


def forbidden(*_: Any, **__: Any) -> None:
    pytest.fail("A finished stage was run again.")


def test_a_weaker_reference_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that walks half the radius breaks what lies within half of it."""
    install(monkeypatch, reach=0.5)
    text = StringIO()
    found = quick(tmp_path, **LIGHT, autoattack={"l2": [L2]}, console=Console(file=text, width=300))
    distance = exact(found.index, 2.0)
    ours, both = int((distance <= L2).sum()), int((distance <= L2 / 2).sum())
    assert both < ours
    said = [line for line in text.getvalue().splitlines() if "utoattack" in line or "AutoAttack" in line]
    assert said[0].startswith(
        f"autoattack l2 at 0.03: robust accuracy {100 - 100 * both / 30:.1f} %, under deepfool "
        f"{100 - 100 * ours / 30:.1f} %, under both {100 - 100 * ours / 30:.1f} % (n = 30), "
    )
    assert said[1:] == [f"  deepfool broke {ours - both} of 30 images that AutoAttack did not."]
    summary = json.loads((tmp_path / "evaluation.json").read_text())["summary"]["threats"]["l2"]["confirmed"]
    figures = summary["autoattack standard at 0.03"]
    low, high = clopper_pearson(both, 30)
    assert figures["robust_error"]["autoattack"] == {"value": both / 30, "low": low, "high": high, "n": 30}
    assert figures["robust_error"]["worst_case"]["value"] == ours / 30
    assert (figures["broken_by_autoattack_alone"], figures["broken_by_attacks_alone"]) == (0, ours - both)


def test_what_our_attacks_missed_is_counted_and_told() -> None:
    """Distances 0, 0.1 … 0.9: within 0.3 are 0 to 3; the reference breaks 0, 1, 5 and 6 there, and 8 at 0.2 already."""
    near, far = confirmation(0.2, [0, 8]), confirmation(0.3, [0, 1, 5, 6])
    record = confirmed(handmade(), "l2", near, far).threats["l2"]
    assert record.robust_to_attacks(0.3).nonzero().flatten().tolist() == [4, 5, 6, 7, 8, 9]
    assert record.missed(far).nonzero().flatten().tolist() == [5, 6]
    assert record.gained(far).nonzero().flatten().tolist() == [2, 3]
    assert record.robust(0.3).nonzero().flatten().tolist() == [4, 7, 9]
    assert record.robust(0.2).nonzero().flatten().tolist() == [3, 4, 5, 6, 7, 9]
    accuracy = record.robust_accuracy(0.3)
    assert (accuracy.value, accuracy.low, accuracy.high, accuracy.n) == (0.3, *clopper_pearson(3, 10), 10)
    text = StringIO()
    ConsoleReporter(Console(file=text, width=300)).confirmed(record, far, "standard")
    assert text.getvalue().splitlines() == [
        "autoattack l2 at 0.3: robust accuracy 60.0 %, under standard 60.0 %, under both 30.0 % (n = 10), 60 s",
        "  AutoAttack broke 2 of 10 images that standard did not: their distances are too long.",
        "  standard broke 2 of 10 images that AutoAttack did not.",
    ]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "another threat": ({"autoattack": {"linf": [0.1]}}, "must confirm threats that are evaluated .l2.; got 'linf'"),
    "no radius": ({"autoattack": {"l2": [0.0]}}, "autoattack radii must be positive; got 0.0"),
    "not a number": ({"autoattack": {"l2": [float("nan")]}}, "autoattack radii must be a finite number; got nan"),
    "twice": ({"autoattack": {"l2": [0.1, 0.1 + 1e-12]}}, "autoattack must name each radius once"),
    "no list": ({"autoattack": [0.5]}, "must give each threat a list of radii"),
    "version": (
        {"autoattack": {"l2": [0.5]}, "autoattack_version": "rand"},
        "autoattack_version must be one of 'standard', 'plus'; got 'rand'",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_radii_are_one_sentence(kind: str) -> None:
    changes, sentence = BAD[kind]
    with pytest.raises(ConfigError, match=sentence) as caught:
        quick(**changes)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_what_cannot_be_done_is_said_before_the_attacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradreg.evaluation.stages.attacks.attack", forbidden)
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(ConfigError, match="needs a package: pip install pyautoattack"):
        quick(**LIGHT, autoattack={"l2": [0.5]})
    install(monkeypatch)
    three = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    pairs = (part(20, seed=2).floats(), torch.zeros(20).long())
    with pytest.raises(ConfigError, match="AutoAttack needs at least 4 classes; the model has 3"):
        quick(**(LIGHT | {"data": pairs}), model=three, autoattack={"l2": [0.5]})
