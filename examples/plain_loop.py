"""The penalty in an ordinary PyTorch loop: python examples/plain_loop.py

The lines that differ from training without it are marked. Everything else, and the data, is what you have already.
"""

import argparse

import torch
from torch import nn

import gradreg


def main() -> None:
    """Train a small classifier on random images."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=100)
    steps = options.parse_args().steps

    model = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.GELU(), nn.Flatten(), nn.Linear(16 * 15 * 15, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        x, y = torch.rand(64, 3, 32, 32), torch.randint(0, 10, (64,))  # pixels in [0, 1]; your data here
        out = gradreg.regularized_loss(model, x, y, threat="linf", eps=8 / 255)  # was: loss = criterion(model(x), y)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
