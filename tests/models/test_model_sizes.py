"""Parameters, buffers and multiply-adds: those of the paper's networks are exact targets, ours are promises."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gradreg.models import build

SIZES = [
    # name, options, image, parameters, buffer elements, million multiply-adds
    ("resnext34_2x32", {"classes": 10, "head": "paper"}, (3, 32, 32), 3_892_298, 9_462, 571.3),
    ("resnext34_2x32", {"classes": 10, "head": "linear"}, (3, 32, 32), 3_892_298, 9_441, 571.3),
    ("resnet50", {"classes": 1000}, (3, 224, 224), 25_557_032, 53_173, 4089.2),
    ("compact", {"classes": 10}, (3, 32, 32), 498_114, 1_158, 19.2),
    ("compact", {"classes": 10, "width": 64}, (3, 32, 32), 1_972_802, 2_310, 70.6),
    ("residual", {"classes": 10}, (3, 32, 32), 1_276_714, 2_766, 102.1),
    ("small", {"classes": 10}, (1, 28, 28), 56_506, 0, 3.2),
]


@pytest.mark.parametrize(("name", "options", "image", "parameters", "buffers", "mmac"), SIZES)
def test_size(
    name: str, options: dict[str, Any], image: tuple[int, ...], parameters: int, buffers: int, mmac: float
) -> None:
    with torch.device("meta"):
        model = build(name, **options).eval()
        with FlopCounterMode(display=False) as counter:
            model(torch.empty(1, *image))
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert sum(b.numel() for b in model.buffers()) == buffers
    assert round(counter.get_total_flops() / 2e6, 1) == mmac
