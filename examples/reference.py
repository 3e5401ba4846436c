"""What the examples share: digits, a small network, and the plain loop that every other loop is compared with."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gradreg

OPTIONS: dict[str, Any] = {"threat": "l2", "eps": 1.0, "h": 0.1, "lazy": 2}
BATCH, EPOCHS = 64, 4  # images per update; there are four updates per epoch


def digits(count: int = 256, part: str = "train") -> tuple[Tensor, Tensor]:
    """The first images of mnist5k, pixels in [0, 1], and their labels."""
    images = getattr(gradreg.data.load("mnist5k"), part)
    return images.floats(slice(count)), images.labels[:count]


def loader(batch_size: int = BATCH) -> DataLoader[tuple[Tensor, ...]]:
    """Batches in a fixed order, so that two loops see the same ones."""
    return DataLoader(TensorDataset(*digits()), batch_size)


def network() -> nn.Module:
    """Without batch statistics, so that the gradients of the parts of a batch add up to those of the whole."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 8, 5, stride=3), nn.GELU(), nn.GroupNorm(2, 8), nn.Flatten(), nn.Linear(8 * 64, 10)
        return nn.Sequential(*layers)


def sgd(weights: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """SGD, in which equal weights mean equal gradients; Adam would blow up differences in the last digit."""
    return torch.optim.SGD(weights, lr=0.05, momentum=0.9)


def plain_loop(model: nn.Module, batches: Iterable[Any], **options: Any) -> nn.Module:
    """The model after one update per batch, in a loop of PyTorch alone; `options` are those of the penalty."""
    optimizer, step = sgd(weight for weight in model.parameters() if weight.requires_grad), 0
    for _ in range(EPOCHS):
        for x, y in batches:
            out = gradreg.regularized_loss(model, x, y, step=step, **options)
            optimizer.zero_grad()
            out.loss.backward()
            optimizer.step()
            step += 1
    return model


def compare(
    found: nn.Module,
    make: Callable[[], nn.Module] = network,
    batches: Iterable[Any] | None = None,
    tolerance: float = 5e-5,
    **options: Any,
) -> None:
    """Assert that `found` has the plain loop's weights, and smaller gradients than it would have without a penalty."""
    batches, penalty = list(loader() if batches is None else batches), OPTIONS | options
    expected, start = plain_loop(make(), batches, **penalty), make()
    difference, moved = _largest_difference(found, expected), _largest_difference(expected, start)
    print(f"weights differ from the plain loop's by at most {difference:.1e}, and have moved by up to {moved:.2g}")
    assert difference < tolerance < 0.01 * moved
    flat, steep = steepness(found), steepness(plain_loop(make(), batches, eps=1e-9, h=0.1))
    print(f"mean gradient norm of the loss at test images: {flat:.3g}, without the penalty {steep:.3g}")
    assert flat < 0.7 * steep


def _largest_difference(first: nn.Module, second: nn.Module) -> float:
    pairs = zip(first.parameters(), second.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def steepness(model: nn.Module) -> float:
    """Mean ‖∇ℓ‖ of 200 test digits: what the penalty makes small."""
    with torch.no_grad():
        return float(gradreg.regularized_loss(model, *digits(200, "test"), eps=1.0, h=0.1).grad_norm.mean())
