"""Summaries of certificates: certified accuracy at radii, how often the classes are seen, and a sweep over σ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_numbers, shown
from gradreg.checks.tensors import check_batch, check_device, check_labels
from gradreg.classifier import Classifier
from gradreg.config.options import options_of
from gradreg.errors import DataError
from gradreg.penalty.passes import Model
from gradreg.smoothing.certificates import Certificates
from gradreg.smoothing.certify import certify
from gradreg.smoothing.intervals import clopper_pearson
from gradreg.smoothing.options import CertifyOptions


@dataclass(frozen=True)
class CertifiedAccuracy:
    """The fraction of images that are classified correctly with a certificate of at least `radius`, and its interval.

    The interval is for the sampling of images, at 95 %; each certificate may be wrong with probability α besides.
    """

    radius: float
    accuracy: float
    low: float
    high: float
    n: int
    sigma: float
    best_over_sigma: bool = False
    """Picked among several σ after seeing the results: optimistic, and no accuracy of any one classifier."""


@validated
def certified_accuracy(certificates: Certificates, y: Tensor, radii: Sequence[float]) -> list[CertifiedAccuracy]:
    """At each radius, the fraction of images certified there with the right class. Abstaining counts as an error."""
    radii, correct = check_numbers("radii", radii, least=0), _correct(certificates, y)
    rows = []
    for radius in radii:
        hits, n = int((correct & (certificates.radius >= radius)).sum()), len(correct)
        low, high = clopper_pearson(hits, n)
        rows.append(CertifiedAccuracy(float(radius), hits / n, low, high, n, certificates.settings.sigma))
    return rows


@validated
def frequencies(certificates: Certificates, y: Tensor, at: Sequence[float]) -> list[float]:
    """The fraction of images whose right class noisy images were given at least so often: the distribution of p_A.

    It says where a classifier is sure, whatever n and α. p_A is estimated by the samples drawn, few where the
    sequential test soon had its answer. An image that is misclassified or abstained on counts at no frequency.
    """
    levels = check_numbers("at", at, least=0, most=1)
    if len(certificates.frequency) == 0:
        raise DataError("These certificates are of before frequencies were kept: certify again.")
    correct = _correct(certificates, y)
    return [float((correct & (certificates.frequency >= level)).double().mean()) for level in levels]


@validated
def average_certified_radius(certificates: Certificates, y: Tensor) -> float:
    """The mean radius, with 0 for images that are misclassified or abstained on (Zhai et al. 2020).

    Not a figure to compare classifiers by (Sun et al., ICML 2025): it grows without limit with n and with the images
    that are easy anyway, so that a trivial classifier can beat a good one. Report `certified_accuracy`.
    """
    return float(torch.where(_correct(certificates, y), certificates.radius, 0.0).mean())


@dataclass(frozen=True)
class Sweep:
    """Certificates for each σ, their accuracies, and at each radius the best of them, marked as such."""

    certificates: tuple[Certificates, ...]
    accuracies: tuple[tuple[CertifiedAccuracy, ...], ...]
    best: tuple[CertifiedAccuracy, ...]


@validated
def sweep(
    model: Model,
    x: Tensor,
    y: Tensor,
    sigmas: Sequence[float],
    radii: Sequence[float],
    **keywords: Any,
) -> Sweep:
    """Certify with each σ. Each is another smoothed classifier: one σ has to be chosen before it is deployed.

    Other keywords are those of `CertifyOptions`.
    """
    sigmas = check_numbers("sigmas", sigmas, above=0, usual="as [0.12, 0.25, 0.5]")
    radii, x = check_numbers("radii", radii, ascending=True, least=0), check_batch(x)
    y = check_labels(y, len(x))
    options = [options_of(CertifyOptions, None, {"sigma": sigma, "radii": radii, **keywords}) for sigma in sigmas]
    check_device("y", y, x)
    largest = int(y.argmax())  # a label beyond the classes is not to be found after the work
    Classifier.of(model).check(x[largest : largest + 1], y[largest : largest + 1])
    certificates = tuple(certify(model, x, each) for each in options)
    accuracies = tuple(tuple(certified_accuracy(one, y, radii)) for one in certificates)
    best = []
    for at_radius in zip(*accuracies, strict=True):
        top = max(at_radius, key=lambda row: row.accuracy)
        best.append(CertifiedAccuracy(top.radius, top.accuracy, top.low, top.high, top.n, top.sigma, len(sigmas) > 1))
    return Sweep(certificates, accuracies, tuple(best))


def _correct(certificates: Certificates, y: Tensor) -> Tensor:
    images = int(certificates.index.max()) + 1
    if not isinstance(y, Tensor) or y.ndim != 1 or len(y) < images:
        raise DataError(f"y must be a tensor with one label per image, at least {images}; got {shown(y)}.")
    y = check_labels(y, len(y))
    return certificates.prediction == y.to(certificates.index.device)[certificates.index]
