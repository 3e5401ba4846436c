"""The small network on the embedded digits, trained in half a minute: the demo and the measurements stand on it."""

from collections.abc import Iterator

import torch
from torch import nn

from gradreg.data import Batches, Images
from gradreg.models import build
from gradreg.penalty import regularized_loss

# In threat units: the l2 radius that MNIST models are usually defended for.
EPS = 2.0


def trained(images: Images, eps: float, epochs: int = 6, seed: int = 0) -> nn.Module:
    """The network in eval mode: plain for `eps=0`, else with the l2 penalty in threat units."""
    model = fresh_model(seed)
    for _ in steps_of_training(model, Batches(images, 64, shuffle=True, seed=seed, drop_last=True), eps, epochs):
        pass
    return model.eval()


def fresh_model(seed: int) -> nn.Module:
    """The untrained network of that seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build("small", classes=10, mean=0.13, std=0.31)


def steps_of_training(model: nn.Module, batches: Batches, eps: float, epochs: int) -> Iterator[float]:
    """The user's own loop, but for one line: `regularized_loss` stands where the criterion stood."""
    steps = epochs * len(batches)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        for x, y in batches:
            out = regularized_loss(model, x, y, threat="l2", eps=eps, h=0.1)
            optimizer.zero_grad()
            out.backward()
            optimizer.step()
            schedule.step()
            yield out.loss.item()
