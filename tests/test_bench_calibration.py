"""The measurement of calibrated bounds, on numbers whose rate is known and on a network of a few pixels."""

import pytest
import torch
from torch import nn

from bench.calibration import SHIFTS, searched, shift_row, splits
from bench.options import CalibrationOptions
from gradreg.bounds import Calibration
from gradreg.errors import ConfigError


def test_over_many_splits_the_rate_is_alpha() -> None:
    """Independent multiples: the k-th of 50 is exceeded with probability 1 − k/51 = 5/51, whatever their law."""
    source = torch.Generator().manual_seed(0)
    distance = torch.rand(100, generator=source, dtype=torch.float64) + 0.1
    rates, tight = splits(distance * torch.rand(100, generator=source, dtype=torch.float64), distance, 0.1, 400, 0)
    assert float(rates.mean()) == pytest.approx(5 / 51, abs=0.02)
    assert 0.3 < float(tight.mean()) < 0.8


def test_images_are_searched_and_attacked_and_shifts_stay_in_the_box() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    x = torch.rand(30, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = model(x).argmax(1)
    found = searched(model, x, y, "l2", 0)
    assert found.propagations <= 120
    assert found.attacked_propagations > 0
    assert len(found.score) == len(found.distance) == 30
    row = shift_row("linear", "none", Calibration(0.1, 100.0, 1.0, 1.0, "standard", 30, 0), found)
    assert (row.n, row.violated) == (30, 0.0)
    assert row.chance == pytest.approx(1)
    row = shift_row("linear", "none", Calibration(0.1, 0.5, 1.0, 1.0, "standard", 30, 0), found)
    assert row.violated > 0.9
    assert row.chance < 1e-6
    for shift in SHIFTS.values():
        moved = shift(x)
        assert moved.shape == x.shape
        assert float(moved.min()) >= 0
        assert float(moved.max()) <= 1
        assert not torch.equal(moved, x)


def test_options_check_themselves() -> None:
    with pytest.raises(ConfigError, match="splits must be at least 1; got 0"):
        CalibrationOptions(splits=0)
    with pytest.raises(ConfigError, match="alpha must be above 0 and below 1; got 2"):
        CalibrationOptions(alpha=2)
