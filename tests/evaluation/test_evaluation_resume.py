"""An evaluation that was killed, whenever, ends with the files of one that was not."""

import json
import os
import random
import signal
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

import gradreg.diagnosis
from evaluation_toys import linear, part, quick, toy
from gradreg.attacks import run, suite
from gradreg.diagnosis import Flag
from gradreg.errors import ConfigError, StorageError
from gradreg.evaluation import load
from handmade import handmade

TIMES = ("checksum", "created", "seconds")
# Four images a batch make two of them; local estimates are of few images.
SETTINGS: dict[str, Any] = {"images": 8, "batch_size": 4, "regularity": "local", "diagnosis": True}


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def told(*_: Any, **__: Any) -> list[Flag]:
    """A diagnosis that takes no time."""
    return [Flag("single-step-wins", "info", {"n": 12}, "Of 12 images none.")]


@pytest.fixture(autouse=True)
def _quick_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradreg.diagnosis, "diagnose", told)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def files(folder: Path) -> tuple[Any, bytes, dict[str, torch.Tensor]]:
    from safetensors.torch import load_file

    facts = without_times(json.loads((folder / "evaluation.json").read_text()))
    return facts, (folder / "images.csv").read_bytes(), load_file(folder / "gallery.safetensors")


def assert_same(one: Path, two: Path) -> None:
    (facts, table, gallery), (others, other_table, other_gallery) = files(one), files(two)
    assert facts == others
    assert table == other_table
    assert gallery.keys() == other_gallery.keys()
    assert all(torch.equal(gallery[name], other_gallery[name]) for name in gallery)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "evaluation"
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradreg.diagnosis, "diagnose", told)
        quick(folder, **SETTINGS)
    return folder


@pytest.mark.parametrize("after", [False, True], ids=["before a rename", "after a rename"])
def test_killed_at_every_rename(
    after: bool, uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing on disk changes but by a rename. Killed at the first one, continued, killed at the next, and so on."""
    rename, left = Path.replace, 0

    def dying(path: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            raise Killed
        result = rename(path, target)
        if left == 0:
            raise Killed
        return result

    monkeypatch.setattr(Path, "replace", dying)
    kills = 0
    while True:
        # Lives of one to five renames; to write the result takes three of them.
        left = 1 + kills % 5
        try:
            quick(tmp_path, **SETTINGS)
            break
        except Killed:
            kills += 1
    assert kills > 3
    assert_same(tmp_path, uninterrupted)
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".state"]


def test_a_finished_one_is_not_done_again(uninterrupted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call costs nothing, to the byte; another threat costs that threat only."""
    quick(tmp_path, **SETTINGS)
    first = (tmp_path / "evaluation.json").read_bytes()
    attacked, run_plan = [], run.run_plan

    def counted(*arguments: Any, **options: Any) -> Any:
        attacked.append(arguments[4].norm.name)
        return run_plan(*arguments, **options)

    monkeypatch.setattr(suite, "run_plan", counted)
    quick(tmp_path, **SETTINGS)
    assert (tmp_path / "evaluation.json").read_bytes() == first
    assert attacked == []
    assert_same(tmp_path, uninterrupted)
    more = quick(tmp_path, **(SETTINGS | {"threat": ("l2", "linf")}))
    assert set(attacked) == {"linf"}
    assert list(load(tmp_path).threats) == ["l2", "linf"]
    assert torch.equal(more.threats["l2"].attacked.distance, load(uninterrupted).threats["l2"].attacked.distance)


def test_another_evaluations_folder_is_refused(tmp_path: Path) -> None:
    light: dict[str, Any] = {"attacks": ["deepfool"], "regularity": "local", "smoothing": None}
    quick(tmp_path / "a", **light)
    other_model = linear()
    with torch.no_grad():
        other_model[1].weight += 1e-6  # type: ignore[index]
    cases: dict[str, dict[str, Any]] = {
        "other weights": {"model": other_model},
        "other images": {"images": 11},
        "other settings": {"attacks": ["ddn"]},
        "other calibration images": {"calibration": part(640, seed=9)},
    }
    for sentence, change in cases.items():
        with pytest.raises(ConfigError, match=rf"was begun with {sentence}; continue it with the same ones"):
            quick(tmp_path / "a", **(light | change))
    with pytest.raises(ConfigError, match="other images, other settings"):
        quick(tmp_path / "a", **(light | {"seed": 1}))
    assert len(load(tmp_path / "a")) == 12
    handmade().save(tmp_path / "b")
    with pytest.raises(ConfigError, match="holds a finished evaluation"):
        quick(tmp_path / "b", **light)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        quick(tmp_path / "file" / "c", **light)


def test_a_link_that_leads_out_of_the_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "mine").write_text("precious")
    for name in ("images.csv", ".state"):
        (tmp_path / "theirs" / name).symlink_to(tmp_path / "mine")
        with pytest.raises(StorageError, match=r"it is a link to .*mine, outside of its folder"):
            quick(tmp_path / "theirs", attacks=["deepfool"], regularity="local", smoothing=None)
        (tmp_path / "theirs" / name).unlink()
    assert (tmp_path / "mine").read_text() == "precious"


def test_calibration_images_are_told_by_what_they_show_not_by_where_they_lie(tmp_path: Path) -> None:
    light: dict[str, Any] = {"attacks": ["deepfool"], "regularity": "local", "smoothing": None}
    quick(tmp_path, **light)
    before = (tmp_path / "evaluation.json").read_bytes()
    quick(tmp_path, calibration=replace(toy().train, source="elsewhere"), **light)
    assert (tmp_path / "evaluation.json").read_bytes() == before
    with pytest.raises(ConfigError, match="other calibration images"):
        quick(tmp_path, calibration=replace(part(640, seed=9), source=toy().train.source), **light)


def in_a_process(folder: str) -> None:
    torch.set_num_threads(1)
    quick(Path(folder), **(SETTINGS | {"diagnosis": False}))


@pytest.mark.slow
def test_killed_by_the_system_at_random_instants(tmp_path: Path) -> None:
    context = get_context("forkserver")
    context.set_forkserver_preload(["gradreg.evaluation"])
    started = time.monotonic()
    quick(tmp_path / "whole", **(SETTINGS | {"diagnosis": False}))
    length, rng, kills = time.monotonic() - started, random.Random(0), 0
    while True:
        process = context.Process(target=in_a_process, args=(str(tmp_path / "killed"),))
        process.start()
        # Longer and longer lives, since the start of a process alone takes a while.
        process.join(rng.uniform(0, length) * (0.3 + 0.05 * kills))
        if process.exitcode is not None:
            break
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills += 1
    assert process.exitcode == 0
    assert kills > 3
    assert_same(tmp_path / "killed", tmp_path / "whole")
