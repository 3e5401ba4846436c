"""What is measured on the held-out images after every epoch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from gradreg.losses import cross_entropy
from gradreg.norms import threat
from gradreg.objectives.crafting import ascend
from gradreg.penalty import regularized_loss
from gradreg.penalty.passes import Calls
from gradreg.processes import Processes
from gradreg.randomness import generator
from gradreg.runs.settings import Probe

Batch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Reading:
    """An examination of the held-out images, as shares of them and means over them."""

    held_out: int
    clean: float
    held_out_loss: float
    commonest: float
    """The share of images given the most frequent answer: 1 when the prediction is constant."""
    probed: int = 0
    probe: float | None = None
    """Robust accuracy under the probe."""
    single_step: float | None = None
    """Accuracy after one full-length step, as single-step training sees it."""
    grad_norm: float | None = None
    grad_norm_max: float | None = None
    linearity_error: float | None = None
    """Mean |slope over eps − ‖∇ℓ‖_*|, which ω(eps)/eps bounds: how far the loss is from linear within the ball."""
    zero_gradients: float | None = None

    @property
    def score(self) -> float:
        """Robust accuracy, or clean accuracy when there is no probe."""
        return self.clean if self.probe is None else self.probe

    @property
    def standard_error(self) -> float:
        """Of the score, for the choice of the images."""
        return math.sqrt(self.score * (1 - self.score) / (self.probed or self.held_out))


def examine(model: nn.Module, batches: Iterable[Batch], probe: Probe | None, processes: Processes) -> Reading:
    """Examine a network in eval mode; every process brings its share of the images, and all get the same answer.

    A batch is pixels, labels and the images' numbers. The probe takes the images of the lowest numbers and starts where
    the number says, so its result depends neither on the batches nor on the number of processes.
    """
    was_training = model.training
    model.eval()
    sums = dict.fromkeys(_SUMS, 0.0)
    largest, answers = 0.0, torch.zeros(0)
    for x, y, numbers in batches:
        if len(x) == 0:
            continue
        with torch.no_grad():
            logits = model(x)
        answers = _add(answers, torch.bincount(logits.argmax(1), minlength=logits.shape[1]).cpu())
        parts = {"clean": _right(logits, y), "held_out_loss": cross_entropy(logits, y).sum().item()}
        chosen = torch.zeros_like(numbers, dtype=torch.bool) if probe is None else numbers < probe.images
        if probe is not None and chosen.any():
            rows = chosen.to(x.device)
            more, steepest = _probe(model, x[rows], y[rows], probe, numbers[chosen])
            parts |= more
            largest = max(largest, steepest)
        for name, value in ({"held_out": float(len(x))} | parts).items():
            sums[name] += value
    model.train(was_training)

    device = processes.device
    totals = processes.sum(torch.tensor(list(sums.values()), dtype=torch.float32, device=device)).tolist()
    classes = int(processes.largest(torch.tensor(len(answers), device=device)))
    answers = processes.sum(_add(torch.zeros(classes), answers).to(device))
    largest = processes.largest(torch.tensor(largest, device=device)).item()
    return _reading(dict(zip(_SUMS, totals, strict=True)), answers.max().item(), largest)


_PROBED = ("probe", "single_step", "grad_norm", "linearity_error", "zero_gradients")
_SUMS = ("held_out", "clean", "held_out_loss", "probed", *_PROBED)


def _probe(model: nn.Module, x: Tensor, y: Tensor, probe: Probe, numbers: Tensor) -> tuple[dict[str, float], float]:
    """Sums over the images, and their largest ‖∇ℓ‖_*."""
    geometry = threat(probe.threat)
    calls = Calls(model, cross_entropy, "train", "off")
    blank = torch.empty_like(x[:1], device="cpu")
    starts = [geometry.sample(blank, probe.eps, generator("probe", number)) for number in numbers.tolist()]
    start = torch.cat(starts).to(x)
    start = (x + start).clamp(0, 1) - x
    step = 2.5 * probe.eps / probe.steps
    attacked = ascend(calls, x, y, geometry, radius=probe.eps, step=step, steps=probe.steps, start=start)
    stepped = ascend(calls, x, y, geometry, radius=probe.eps, step=probe.eps, steps=1)
    with torch.no_grad():
        flat = regularized_loss(model, x, y, threat=geometry, lam=1.0, scale="dual", h=probe.eps)
        right = _right(model(attacked), y), _right(model(stepped), y)
    error, zero = (flat.slope - flat.grad_norm).abs().sum(), (flat.grad_norm == 0).sum()
    values = (*right, flat.grad_norm.sum().item(), error.item(), zero.item())
    return {"probed": float(len(x))} | dict(zip(_PROBED, values, strict=True)), flat.grad_norm.max().item()


def _reading(sums: dict[str, float], commonest: float, largest: float) -> Reading:
    images, probed = sums["held_out"], sums["probed"]
    reading = Reading(int(images), sums["clean"] / images, sums["held_out_loss"] / images, commonest / images)
    if not probed:
        return reading
    probe, single_step, grad_norm, error, zeros = (sums[name] / probed for name in _PROBED)
    return replace(
        reading,
        probed=int(probed),
        probe=probe,
        single_step=single_step,
        grad_norm=grad_norm,
        grad_norm_max=largest,
        linearity_error=error,
        zero_gradients=zeros,
    )


def _right(logits: Tensor, y: Tensor) -> float:
    return (logits.argmax(1) == y).sum().item()


def _add(counts: Tensor, more: Tensor) -> Tensor:
    """The sum of two rows of counts; an empty one counts nothing."""
    return counts + more if len(counts) == len(more) else counts if len(more) == 0 else more.float()
