"""A linear model on small random images, where distances and margins are known in closed form."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.data import DataSet, Images
from gradreg.evaluation import Evaluation, evaluate

CLASSES = ("cat", "dog", "eel", "fox")
SHAPE = (3, 4, 4)


def linear() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        layer = nn.Linear(48, len(CLASSES))
    # No class is preferred at mid grey, so that all of them occur.
    layer.bias.data.copy_(layer.weight.detach().sum(1) / -2)
    return nn.Sequential(nn.Flatten(), layer).eval()


def part(images: int, seed: int, wrong: int = 0) -> Images:
    """Pixels well inside the box, labelled by the model itself, but for the first `wrong` of them."""
    pixels = torch.randint(77, 178, (images, *SHAPE), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    with torch.no_grad():
        labels = linear()(pixels / 255).argmax(1)
    labels[:wrong] = (labels[:wrong] + 1) % len(CLASSES)
    return Images(pixels, labels, CLASSES, source=f"toy {seed}")


def toy() -> DataSet:
    return DataSet("toy", part(640, seed=1), part(60, seed=2, wrong=6))


def quick(folder: Path | None = None, **changes: Any) -> Evaluation:
    """A thorough evaluation of little, in a second or two."""
    settings: dict[str, Any] = {
        "threat": "l2",
        "images": 12,
        "attacks": "quick",
        "calibration_images": 640,
        "batch_size": 100,
        "smoothing": (0.25,),
        "samples": 200,
        "diagnosis": False,
    }
    settings |= changes
    model, data = settings.pop("model", None) or linear(), settings.pop("data", None) or toy()
    return evaluate(model, data, folder=folder, **settings)


def exact_margin(x: Tensor, y: Tensor) -> Tensor:
    scores = linear()(x).detach().softmax(1)
    own = scores.gather(1, y[:, None]).squeeze(1)
    margin: Tensor = scores.scatter(1, y[:, None], -1).amax(1) - own
    return margin


def exact_distance(x: Tensor, y: Tensor, dual: float) -> Tensor:
    """To the nearest of the hyperplanes between the true class and another: (f_c − f_i)/‖w_c − w_i‖_*."""
    logits, weight = linear()(x).detach(), linear()[1].weight.detach()  # type: ignore[index]
    gap = logits.gather(1, y[:, None]) - logits
    steepness = torch.linalg.vector_norm(weight[y][:, None] - weight[None], dual, dim=2)
    to_each = (gap / steepness).scatter(1, y[:, None], torch.inf)
    nearest: Tensor = to_each.amin(1).clamp(min=0)
    return nearest
