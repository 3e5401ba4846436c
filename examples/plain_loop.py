"""The penalty in an ordinary PyTorch loop: python examples/plain_loop.py

The one line that differs from training without it is marked.
"""

import torch
from reference import loader, network, steepness
from torch import nn

import gradreg


def train(penalised: bool) -> nn.Module:
    """A few epochs of your loop, with or without the penalty."""
    model, criterion = network(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(8):
        for x, y in loader(batch_size=32):  # pixels in [0, 1]; normalisation is the model's first layer
            if penalised:
                loss = gradreg.regularized_loss(model, x, y, threat="l2", eps=1.0).loss  # instead of the next line
            else:
                loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model


def main() -> None:
    """Train twice, and compare the gradients at test images."""
    without, with_penalty = steepness(train(penalised=False)), steepness(train(penalised=True))
    print(f"mean gradient norm of the loss: {without:.2f} without the penalty, {with_penalty:.2f} with it")
    assert with_penalty < 0.7 * without


if __name__ == "__main__":
    main()
