"""CLEVER, the local extreme-value score (Weng et al. 2018), for comparison with the bounds.

Gradients of the logit margin are sampled in a ball around each image; the end point of a reverse Weibull distribution
fitted to the maxima of batches stands for the local Lipschitz constant, and the margin over it is the score. It is an
estimate of a bound, from random points, with the weakness that `estimate` describes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gradreg.bounds.data import batches, check
from gradreg.bounds.errors import BoundsError
from gradreg.bounds.extremes import fit_lmoments
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_integer, check_number
from gradreg.classifier import Classifier
from gradreg.display.summary import Shown, Summary, counted, images, spread
from gradreg.extras import need
from gradreg.fingerprints import image_keys
from gradreg.losses import margin
from gradreg.norms import Threat, ThreatName, checked, reach_of
from gradreg.norms import threat as threat_named
from gradreg.penalty.passes import Model
from gradreg.randomness import generator

# Of blocks, and of samples in each; the authors took 500 and 1024.
_MOST = 1_000_000


@dataclass(frozen=True, repr=False)
class Clever(Shown):
    """Scores, the Lipschitz constants they rest on, and where no end point could be fitted."""

    score: Tensor
    """min(margin/L, radius); 0 where the image is misclassified."""
    lipschitz: Tensor
    fallback: Tensor
    """Where the maxima have no finite end point (ξ ≥ 0) or do not vary: the largest one is used instead."""
    radius: float

    kind = "heuristic"

    def summary(self) -> Summary:
        """The scores and what they rest on."""
        n = len(self.score)
        return Summary(
            f"Clever: {images(n)}, within {self.radius:g}, {self.kind}",
            [
                ("score", spread(self.score)),
                ("L", spread(self.lipschitz)),
                ("no end point fitted", counted(int(self.fallback.sum()), n)),
            ],
        )


@validated
def clever(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    threat: ThreatName | Threat = "l2",
    radius: float | None = None,
    blocks: int = 50,
    samples: int = 100,
    batch_size: int = 512,
    seed: int = 0,
) -> Clever:
    """The untargeted score per image from `blocks` maxima over `samples` fresh points each.

    The margin to the nearest rival is differentiated at once, not class by class, so it costs blocks × samples
    gradients per image; images share batches. The fit is by L-moments.
    """
    geometry, classifier = threat_named(threat), Classifier.of(model)
    radius = None if radius is None else check_number("radius", radius, above=0)
    blocks = check_integer("blocks", blocks, least=3, ends=_MOST)
    samples = check_integer("samples", samples, least=1, ends=_MOST)
    need("scipy", "CLEVER")
    batch_size, seed = check_integer("batch_size", batch_size, least=1), check_integer("seed", seed, least=0)
    _, x, y = check(classifier, x, y)
    radius = reach_of(checked(geometry, x), x) if radius is None else radius
    keys = image_keys(x).tolist()
    maxima = torch.zeros(len(x) * blocks, device=x.device, dtype=torch.float64)
    for part in batches(len(maxima), max(1, batch_size // samples)):
        jobs = range(len(maxima))[part]
        points = torch.cat(
            [
                geometry.sample(
                    x.new_empty((samples, *x.shape[1:]), device="cpu"),
                    radius,
                    generator("clever", seed, keys[job // blocks], job % blocks),
                )
                for job in jobs
            ]
        ).to(x.device)
        images = torch.tensor([job // blocks for job in jobs], device=x.device).repeat_interleave(samples)
        inside = (x[images] + points).clamp(*classifier.box)
        norms = []
        for rows in batches(len(inside), batch_size):
            losses, gradients = classifier.loss_and_gradient(inside[rows], y[images[rows]], margin, images[rows])
            # A gradient of logits that are not finite may well be 0, and would not show.
            norms.append(geometry.dual_norm(gradients).where(losses.isfinite(), torch.nan))
        maxima[part] = torch.cat(norms).view(-1, samples).amax(1).double()
    if not bool(maxima.isfinite().all()):
        raise BoundsError("The model's logits or gradients are not finite around some images, so there is no score.")
    lipschitz, fallback = _end_points(maxima.view(len(x), blocks))
    with torch.no_grad():
        gap = torch.cat([-margin(classifier(x[part]), y[part]).double() for part in batches(len(x), batch_size)]).clamp(
            min=0
        )
    score = (gap / lipschitz.where(lipschitz > 0, 1)).where(lipschitz > 0, torch.inf).clamp(max=radius)
    return Clever(score.where(gap > 0, 0), lipschitz, fallback, radius)


def _end_points(maxima: Tensor) -> tuple[Tensor, Tensor]:
    """μ − σ/ξ where ξ < 0, at least the largest maximum; and where the largest maximum is used instead."""
    rows = maxima.cpu().numpy()
    largest, spread = rows.max(1), np.ptp(rows, 1)
    varies = spread > 1e-12 * np.abs(largest)
    safe = np.where(varies[:, None], rows, np.arange(rows.shape[1]))
    fit = fit_lmoments(safe)
    bounded = varies & (fit.shape < 0)
    end = fit.location - fit.scale / np.where(bounded, fit.shape, -1)
    found = np.where(bounded, np.maximum(end, largest), largest)
    return torch.from_numpy(found).to(maxima.device), torch.from_numpy(~bounded).to(maxima.device)
