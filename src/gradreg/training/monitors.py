"""Metrics on the held-out images after every epoch."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from gradreg.calling.targets import Target, at, labels_in
from gradreg.norms import checked, threat
from gradreg.objectives.crafting import ascend
from gradreg.penalty import regularized_loss
from gradreg.penalty.passes import Calls
from gradreg.processes import Processes
from gradreg.randomness import generator
from gradreg.runs.settings import Probe
from gradreg.training.measure import Measure

Batch = tuple[Tensor, Target, Tensor]


@dataclass(frozen=True)
class HeldOutMetrics:
    """Fractions of the held-out images and means over them; the field names are the columns of metrics.jsonl."""

    held_out: int
    clean: float
    held_out_loss: float
    commonest: float
    """The fraction of images predicted as the most frequent class: 1 if the prediction is constant."""
    probed: int = 0
    probe: float | None = None
    """Robust accuracy under the probe."""
    single_step: float | None = None
    """Accuracy under a single step of length eps (FGSM)."""
    grad_norm: float | None = None
    grad_norm_max: float | None = None
    linearity_error: float | None = None
    """Mean |slope over eps − ‖∇ℓ‖_*|, at most ω(eps)/eps: how far the loss is from linear within the ball."""
    zero_gradients: float | None = None

    @property
    def score(self) -> float:
        """Robust accuracy under the probe; clean accuracy without one."""
        return self.clean if self.probe is None else self.probe

    @property
    def standard_error(self) -> float:
        """Standard error of the score, over the choice of images."""
        return math.sqrt(self.score * (1 - self.score) / (self.probed or self.held_out))


def evaluate_held_out(
    model: nn.Module,
    batches: Iterable[Batch],
    probe: Probe | None,
    processes: Processes,
    measure: Measure | None = None,
) -> HeldOutMetrics:
    """Evaluate a network in eval mode. Each process passes its part of the images, and all get the joint metrics.

    A batch is pixels, targets and image numbers. The probe attacks the images with the lowest numbers, from a random
    start that depends on the number, so its result depends neither on the batches nor on the number of processes.
    """
    measure, was_training = measure or Measure(), model.training
    model.eval()
    sums = dict.fromkeys(_SUMS, 0.0)
    largest, counts_per_class = 0.0, torch.zeros(0)
    for x, y, numbers in batches:
        if len(x) == 0:
            continue
        with torch.no_grad():
            logits = measure.logits(model, x)
            right, losses = measure.right(logits, y), measure.losses(logits, y)
        counts_per_class = _add(counts_per_class, _predictions(logits, y).cpu())
        parts = {"clean": right.sum().item(), "held_out_loss": losses.sum().item()}
        chosen = torch.zeros_like(numbers, dtype=torch.bool) if probe is None else numbers < probe.images
        if probe is not None and chosen.any():
            rows = chosen.to(x.device)
            more, steepest = _probe(model, x[rows], at(y, rows), probe, numbers[chosen], measure)
            parts |= more
            largest = max(largest, steepest)
        for name, value in ({"held_out": float(len(x))} | parts).items():
            sums[name] += value
    model.train(was_training)

    device = processes.device
    totals = processes.sum(torch.tensor(list(sums.values()), dtype=torch.float32, device=device)).tolist()
    classes = int(processes.largest(torch.tensor(len(counts_per_class), device=device)))
    counts_per_class = processes.sum(_add(torch.zeros(classes), counts_per_class).to(device))
    largest = processes.largest(torch.tensor(largest, device=device)).item()
    return _metrics(dict(zip(_SUMS, totals, strict=True)), counts_per_class.max().item(), largest)


_PROBED = ("probe", "single_step", "grad_norm", "linearity_error", "zero_gradients")
_SUMS = ("held_out", "clean", "held_out_loss", "probed", *_PROBED)


def _probe(
    model: nn.Module, x: Tensor, y: Target, probe: Probe, numbers: Tensor, measure: Measure
) -> tuple[dict[str, float], float]:
    """Sums over the images, and their largest ‖∇ℓ‖_*."""
    geometry = checked(threat(probe.threat), x)
    calls = Calls(model, measure.criterion, "train", "off", measure.output)
    blank = torch.empty_like(x[:1], device="cpu")
    starts = [geometry.sample(blank, probe.eps, generator("probe", number)) for number in numbers.tolist()]
    start = torch.cat(starts).to(x)
    start = (x + start).clamp(0, 1) - x
    step = 2.5 * probe.eps / probe.steps
    attacked = ascend(calls, x, y, geometry, radius=probe.eps, step=step, steps=probe.steps, start=start)
    stepped = ascend(calls, x, y, geometry, radius=probe.eps, step=probe.eps, steps=1)
    with torch.no_grad():
        passes: dict[str, Any] = {"criterion": measure.criterion, "output": measure.output}
        flat = regularized_loss(model, x, y, threat=geometry, lam=1.0, scale="dual", h=probe.eps, **passes)
        correct = [measure.right(measure.logits(model, each), y).sum().item() for each in (attacked, stepped)]
    error, zero = (flat.slope - flat.grad_norm).abs().sum(), (flat.grad_norm == 0).sum()
    values = (*correct, flat.grad_norm.sum().item(), error.item(), zero.item())
    return {"probed": float(len(x))} | dict(zip(_PROBED, values, strict=True)), flat.grad_norm.max().item()


def _metrics(sums: dict[str, float], most_frequent: float, largest: float) -> HeldOutMetrics:
    images, probed = sums["held_out"], sums["probed"]
    metrics = HeldOutMetrics(
        int(images), sums["clean"] / images, sums["held_out_loss"] / images, most_frequent / images
    )
    if not probed:
        return metrics
    probe, single_step, grad_norm, error, zeros = (sums[name] / probed for name in _PROBED)
    return replace(
        metrics,
        probed=int(probed),
        probe=probe,
        single_step=single_step,
        grad_norm=grad_norm,
        grad_norm_max=largest,
        linearity_error=error,
        zero_gradients=zeros,
    )


def _predictions(logits: Tensor, y: Target) -> Tensor:
    """How many images each class is predicted for; none where the targets are not labels."""
    known = labels_in(y, logits) is not None
    return torch.bincount(logits.argmax(1), minlength=logits.shape[1]) if known else torch.zeros(1)


def _add(counts: Tensor, more: Tensor) -> Tensor:
    """The sum of two rows of counts, either of which may be empty."""
    return counts + more if len(counts) == len(more) else counts if len(more) == 0 else more.float()
