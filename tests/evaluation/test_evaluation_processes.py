"""Two processes write the file that one writes."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes
from torch.testing import assert_close
from toy_autoattack import install

from evaluation_toys import quick
from gradreg.evaluation import load
from gradreg.evaluation.stages import confirmation as confirming
from gradreg.processes import leave

SETTINGS: dict[str, Any] = {
    "regularity": "local",
    "batch_size": 3,
    "images": 7,
    "smoothing": (0.1,),
    "radii": (0.05, 0.1),
    "autoattack": {"l2": [0.05]},
}


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    confirming._CHUNK = 3
    reference = install(pytest.MonkeyPatch())
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    found = quick(Path(folder) / "two", **SETTINGS)
    again = quick(Path(folder) / "two", **SETTINGS)
    assert torch.equal(found.threats["l2"].attacked.distance, again.threats["l2"].attacked.distance)
    assert found.threats["l2"].attacked.winner == again.threats["l2"].attacked.winner
    # Seven images make three chunks, of which the first process gets two; each did its own, once.
    assert reference.sizes == [[3, 2], [2]][rank]
    (confirmed,), (once_more,) = found.threats["l2"].confirmed, again.threats["l2"].confirmed
    assert torch.equal(confirmed.robust, once_more.robust)
    assert (confirmed.forwards, confirmed.backwards) == (once_more.forwards, once_more.backwards) == (1.0, 1.0)
    few = quick(None, **(SETTINGS | {"images": 1}))
    assert len(few) == 1
    leave()


def test_two_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_processes(worker, args=(str(tmp_path),), nprocs=2, start_method="forkserver")
    monkeypatch.setattr(confirming, "_CHUNK", 3)
    install(monkeypatch)
    quick(tmp_path / "one", **SETTINGS)
    one, two = load(tmp_path / "one"), load(tmp_path / "two")
    for name in ("index", "label", "prediction", "margin"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    a, b = one.threats["l2"], two.threats["l2"]
    assert_close(a.attacked.distance, b.attacked.distance, rtol=0, atol=1e-5)
    assert a.attacked.winner == b.attacked.winner
    assert a.gallery is not None
    assert b.gallery is not None
    assert a.gallery.rows == b.gallery.rows
    assert_close(a.gallery.adversarial, b.gallery.adversarial, rtol=0, atol=1e-3)
    assert a.bounded is not None
    assert b.bounded is not None
    assert_close(a.bounded.omega_bound, b.bounded.omega_bound)
    assert 0 < int(a.confirmed[0].robust.sum()) < 7
    assert torch.equal(a.confirmed[0].robust, b.confirmed[0].robust)
    for name in ("prediction", "radius", "samples"):
        assert torch.equal(getattr(one.smoothing[0], name), getattr(two.smoothing[0], name))
    assert (tmp_path / "one" / "images.csv").read_text().splitlines()[0] == (
        tmp_path / "two" / "images.csv"
    ).read_text().splitlines()[0]
    # The shares were dropped once the whole was saved.
    assert not list((tmp_path / "two" / ".state").glob("*-of-*"))
