"""Samples of what evaluations, attacks, certificates and bounds write and read."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from fuzz_values import plain
from safetensors.torch import load_file
from torch import Tensor, nn

from evaluation_toys import part, quick
from gradreg import Certificates, Flag, Pool, Regularity, attack, certify
from gradreg.ledger import Ledger
from gradreg.reading import read_text
from gradreg.report.writing import compare, render
from handmade import confirmation, confirmed, handmade

RESULTS = Path(__file__).parents[2] / "results"


def make_evaluation(folder: Path, seed: int) -> None:
    made = confirmed(handmade(f"net {seed}", hours=1.0 + seed), "l2", confirmation(0.25, [0, 1, 2]))
    replace(made, index=made.index + seed).save(folder)


def hold_evaluation(value: Any, folder: Path) -> None:
    n, classes = len(value), len(value.data.classes)
    assert len(set(value.index.tolist())) == n
    assert all(0 <= row < value.data.images for row in value.index.tolist())
    for column in (value.label, value.prediction):
        assert column.shape == (n,)
        assert bool(((column >= 0) & (column < classes)).all())
    lines = (folder / "images.csv").read_text().split("\n")
    margins = [float(line.split(",")[3]) for line in lines[1 : n + 1]]
    assert value.margin.tolist() == torch.tensor(margins, dtype=torch.float64).to(value.margin.dtype).tolist()
    for found in value.threats.values():
        assert bool((found.attacked.distance >= 0).all()), "a distance is 0 or more, and never NaN"
        assert len(found.attacked.winner) == n
        if found.bounded is not None:
            assert bool((found.bounded.omega_bound >= 0).all())
            assert found.bounded.omega_bound.shape == (n,)
        if found.gallery is not None:
            assert all(0 <= row < n for row in found.gallery.rows)
            assert bool(((found.gallery.adversarial >= 0) & (found.gallery.adversarial <= 1)).all())
    for smoothed in value.smoothing:
        assert bool((smoothed.radius >= 0).all())


def read_report(folder: Path) -> str:
    comparison = compare([folder])
    return "".join(render(comparison, kind) for kind in ("html", "md", "json"))


def make_state(folder: Path, seed: int) -> None:
    """An evaluation that was interrupted at its end: all stages are there, the record is not."""
    quick(folder, images=6, samples=100, smoothing=(0.25 + seed,), regularity="local", data=part(20, seed=seed))
    for name in ("evaluation.json", "images.csv", "gallery.safetensors"):
        (folder / name).unlink()


def read_state(folder: Path) -> Any:
    found = quick(folder, images=6, samples=100, smoothing=(0.25,), regularity="local", data=part(20, seed=0))
    columns = [found.prediction, found.margin, found.index, found.smoothing[0].radius]
    return columns + [getattr(found.threats["l2"].attacked, name) for name in ("distance", "winner", "forwards")]


# --- results of single functions ---

PIXELS = torch.rand(5, 1, 4, 4, generator=torch.Generator().manual_seed(1))
LABELS = torch.tensor([0, 1, 2, 0, 1])


def linear(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()


def make_pool(folder: Path, seed: int) -> None:
    pool = Pool(6, {"data": "toy"})
    pool.update(attack(linear(seed), PIXELS, LABELS, attacks="quick"), torch.arange(5))
    pool.save(folder / "pool.safetensors")


def read_pool(folder: Path) -> Any:
    pool = Pool.load(folder / "pool.safetensors")
    best = pool.result
    return {"about": pool.about, "examined": pool.examined, "result": best}


def hold_pool(value: Any, folder: Path) -> None:
    result, stored = value["result"], load_file(folder / "pool.safetensors")
    n = len(result.winner)
    for name in ("distance", "adversarial", "forwards", "backwards"):
        assert plain(getattr(result, name)) == plain(stored[name])
        assert len(getattr(result, name)) == n
    assert bool((result.distance >= 0).all()), "a distance of −5 would win"
    seen = result.adversarial[value["examined"]]
    assert bool(((seen >= 0) & (seen <= 1)).all())


def make_certificates(folder: Path, seed: int) -> None:
    certify(linear(seed), PIXELS, sigma=0.25, n=100, n0=10).save(folder / "c.safetensors")


def hold_certificates(value: Any, folder: Path) -> None:
    stored = load_file(next(folder.glob("*.safetensors")))
    assert all(plain(getattr(value, name)) == plain(tensor) for name, tensor in stored.items())
    assert bool((value.radius >= 0).all())
    assert bool(value.radius.isfinite().all())
    assert 0 < value.settings.alpha < 1


def make_certification(folder: Path, seed: int) -> None:
    certify(linear(seed), PIXELS, sigma=0.25, n=100, n0=10, seed=seed, state=folder / "state.safetensors")


def read_certification(folder: Path) -> Certificates:
    return certify(linear(0), PIXELS, sigma=0.25, n=100, n0=10, state=folder / "state.safetensors")


def make_regularity(folder: Path, seed: int) -> None:
    grid = torch.tensor([0.25, 0.5, 1.0]) + seed
    made = Regularity(
        "l2", "local", torch.ones(3), grid, grid.repeat(3, 1), keys=torch.arange(3), flags=("omega:steep",)
    )
    made.save(folder / "r.safetensors")


def hold_regularity(value: Any, folder: Path) -> None:
    stored = load_file(next(folder.glob("*.safetensors")))
    assert all(plain(getattr(value, name)) == plain(tensor) for name, tensor in stored.items())
    assert bool((value.eps > 0).all())
    assert bool((value.omega >= 0).all())
    assert bool((value.lipschitz > 0).all())


@dataclass(frozen=True)
class Part:
    """A part of interrupted work."""

    name: str
    value: float
    column: Tensor


def make_ledger(folder: Path, seed: int) -> None:
    with Ledger(folder, {"images": str(seed)}, noted={"origin": {"commit": "0123abc"}}) as ledger:
        for name in ("one", "two"):
            ledger.save(name, Part(name, float("inf"), torch.arange(3) + seed))
    (folder / "one.seconds.json").write_text('{"seconds": 3.5}')


def read_ledger(folder: Path) -> Any:
    with Ledger(folder, {"images": "0"}) as ledger:
        found = [ledger.load(name, Part) for name in ("one", "two")]
        return found, dict(ledger.noted), 0 <= ledger.timer("one").seconds < 1e10


def hold_ledger(value: Any, folder: Path) -> None:
    assert value[2], "a clock runs forwards"


def lesser_ledger(value: Any, original: Any, sample: Path) -> bool:
    """Parts that are gone are computed again; what was noted at the beginning is gone with its file."""
    same = all(found is None or plain(found) == plain(was) for found, was in zip(value[0], original[0], strict=True))
    return same and value[1] in ({}, original[1])


def make_flag(folder: Path, seed: int) -> None:
    flag = Flag("single-step-wins", "info", {"fgsm": 0.1, "n": 10 + seed}, "One step breaks 10 %.", "Nothing.")
    (folder / "flag.json").write_text(flag.to_json())


def read_flag(folder: Path) -> Flag:
    return Flag.from_json(read_text(folder / "flag.json"))


def hold_flag(value: Any, folder: Path) -> None:
    stored = json.loads((folder / "flag.json").read_text())
    assert all(getattr(value, name) == stored[name] for name in ("code", "severity", "finding"))


def make_bench(folder: Path, seed: int) -> None:
    shutil.copy(RESULTS / "bench" / "attacks.json", folder / "b.json")
