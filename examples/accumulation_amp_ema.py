"""Gradient accumulation, mixed precision and an average of the weights: python examples/accumulation_amp_ema.py

`follow(optimizer)` counts updates, so that with `lazy=2` all micro-batches of every second update have the penalty.
Under autocast the passes of the penalty stay in float32: bf16 keeps nothing of a difference over a small h.
"""

from copy import deepcopy

import torch
from reference import EPOCHS, OPTIONS, compare, loader, network, sgd
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import gradreg

ACCUMULATE, DECAY = 4, 0.9


def main() -> None:
    """Train with micro-batches of 16, and compare with a plain loop over batches of 64."""
    model = network()
    by_hand = deepcopy(model)
    optimizer = sgd(model.parameters())
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    penalty = gradreg.GradientPenalty(**OPTIONS).follow(optimizer)
    penalties = []
    for _ in range(EPOCHS):
        for number, (x, y) in enumerate(loader(batch_size=16)):
            with torch.autocast("cpu", torch.bfloat16):
                out = penalty(model, x, y)
            (out.loss / ACCUMULATE).backward()
            penalties.append(float(out.penalty))
            if (number + 1) % ACCUMULATE == 0:
                optimizer.step()
                optimizer.zero_grad()
                average.update_parameters(model)
                for mean, weight in zip(by_hand.parameters(), model.parameters(), strict=True):
                    share = 0.0 if penalty.steps == 1 else DECAY  # the first update is copied
                    mean.data.lerp_(weight.data, 1 - share)

    assert penalty.state_dict() == {"steps": EPOCHS * 4}
    assert [value > 0 for value in penalties] == ([True] * ACCUMULATE + [False] * ACCUMULATE) * 2 * EPOCHS
    compare(model)
    for found, expected in zip(average.module.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(found, expected)


if __name__ == "__main__":
    main()
