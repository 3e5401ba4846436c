"""The measurement that learns the band: its figures on models whose distances are known, and the file of the docs."""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

from attack_peers import linear
from bench import band as measured
from bench import band_command
from bench.band import JudgedRow, first_steps, joined, judge, learned, overestimates
from bench.band_command import parts, show
from bench.kinds import KINDS, fresh
from bench.options import BandOptions
from docs.make.band import band_table, bands_of
from gradreg.attacks import AttackResult, attack
from gradreg.attacks.band import BANDS
from gradreg.attacks.suite import FIXED
from gradreg.data import Images, load
from gradreg.errors import ConfigError, DataError

FIGURES = Path(__file__).parents[1] / "results/bench/band.json"
ROW = JudgedRow("plain", "linf", 0.1, 10, 4, 3, 1, 0, 4, 3, 500.0, 1000.0, 8000.0)


def planes(classes: int = 3) -> tuple[nn.Module, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    model = linear(torch.randn(classes, 16, generator=generator), torch.zeros(classes))
    x = 0.5 + 0.1 * torch.randn(6, 1, 4, 4, generator=generator)
    return model, x, model(x).argmax(1)


def test_the_limit_is_that_of_wilks() -> None:
    """59 images are the fewest whose largest value bounds 95 % of the others with 95 % confidence."""
    ratios = 1.1 + torch.rand(59, generator=torch.Generator().manual_seed(0)) / 10
    assert learned(ratios).limit <= 0.05 < learned(ratios[:58]).limit
    band = learned(ratios)
    assert 1.5 * float(ratios.max()) - 0.5 <= band.factor < 1.5 * float(ratios.max()) - 0.45
    assert band.images == 59
    assert learned(torch.ones(59)).factor == 1
    # Without a distance an image is never left, so it exceeds nothing; it was looked at all the same.
    assert learned(torch.cat([ratios, torch.tensor([torch.inf])])) == replace(
        band, images=60, limit=learned(torch.ones(60)).limit
    )


def test_the_limit_holds_as_often_as_it_says() -> None:
    """Of 4,000 samples of 100 images each, at most 5 % have a largest ratio that is exceeded more often; simulated."""
    uniform = torch.rand(4000, 100, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exceeded = 1 - uniform.amax(1)
    wrong = float((exceeded > learned(1 + uniform[0]).limit).double().mean())
    assert wrong == pytest.approx(0.05, abs=0.012)


def test_images_are_left_after_what_measures_distances() -> None:
    assert [step.attack.name for step in first_steps("l2")] == ["fmn"] * 4
    assert len(first_steps("linf")) < len(FIXED["standard"])


def test_overestimates_on_planes_are_next_to_nothing() -> None:
    model, x, y = planes()
    ratio = overestimates(model, x, y, "l2", 0).ratio
    assert 1 <= float(ratio.min()) <= float(ratio.max()) <= 1.01


def test_a_miss_is_what_the_reference_breaks_and_we_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference that breaks everything: all that we leave is missed."""
    model, x, y = planes()
    eps = float(attack(model, x, y, threat="linf", attacks="quick").distance.min()) / 2

    def all_broken(model: nn.Module, x: Tensor, y: Tensor, **options: Any) -> AttackResult:
        many = torch.full_like(y, 50)
        return AttackResult(torch.full((len(x),), eps / 2), x, ("autoattack",) * len(x), many, many, "linf")

    monkeypatch.setattr(measured, "autoattack", all_broken)
    row = judge(model, x, y, network="planes", threat="linf", eps=eps, seed=0)
    assert (row.images, row.robust, row.left_early, row.missed, row.missed_early) == (6, 6, 6, 6, 6)
    assert row.propagations_reference == 600
    assert row.propagations < row.propagations_whole
    both = joined([row, row])
    assert (both.eps, both.images, both.missed, both.propagations) == (eps, 12, 12, 2 * row.propagations)


def test_nothing_is_learned_from_what_is_judged() -> None:
    """The two halves of the training images, and those that are learned on, have no image in common."""
    train = load("mnist5k").train
    assert isinstance(train, Images)
    numbered = replace(train, pixels=_numbered(len(train)))
    sets = [set(map(bytes, part.pixels.flatten(1).numpy())) for part in parts(numbered)]
    assert len(set.union(*sets)) == sum(map(len, sets)) == len(train)


def _numbered(count: int) -> Tensor:
    numbers = torch.arange(count)
    pixels = torch.stack([numbers // 256, numbers % 256], 1).to(torch.uint8)
    return pixels.view(count, 1, 1, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_networks_of_a_seed_are_the_same(kind: str) -> None:
    first, again = (fresh(kind, 3)(torch.zeros(2, 1, 28, 28)) for _ in range(2))
    assert first.shape == (2, 10)
    assert torch.equal(first, again)


@pytest.mark.slow
def test_the_command_learns_and_continues(tmp_path: Path) -> None:
    options = BandOptions(
        learn="mnist5k", images=2, judged=0, steps=2, threats="l2", work=tmp_path / "work", json=tmp_path / "band.json"
    )
    found = show(options, Console(quiet=True))
    assert found == show(options, Console(quiet=True))
    written = json.loads((tmp_path / "band.json").read_text())
    assert bands_of(written) == found.bands
    assert [row["network"] for row in written["learned"]] == list(KINDS)
    assert len(band_table(["learned"], tmp_path / "band.json").rows) == len(KINDS)


def test_judging_needs_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(ConfigError, match="pip install pyautoattack, or pass --judged 0"):
        band_command.show(BandOptions(), Console(quiet=True))
    with pytest.raises(ConfigError, match="learn and threats must each name at least one"):
        BandOptions(learn="")
    with pytest.raises(ConfigError, match=r"only must be among undefended, .*; got resnet"):
        band_command.show(BandOptions(only="resnet", judged=0), Console(quiet=True))


def test_the_bands_in_use_are_those_that_were_measured() -> None:
    assert bands_of(json.loads(FIGURES.read_text())) == BANDS


def test_the_table_of_verdicts(tmp_path: Path) -> None:
    about = {"options": {"seed": 0}, "machine": {"commit": "abc", "processor": "A"}, "autoattack": "0.2.0"}
    path = tmp_path / "band.json"
    path.write_text(json.dumps({**about, "bands": {}, "learned": [], "judged": [asdict(ROW)]}))
    (row,) = band_table(["judged"], path).rows
    assert (row.name, *(cell.text for cell in row.cells)) == (
        "plain, l∞ 0.1", "10", "4", "3", "3", "1", "50", "0.500×", "0.062×"
    )  # fmt: skip
    with pytest.raises(DataError, match="must be one of learned, judged; got 'sideways'"):
        band_table(["sideways"], path)
