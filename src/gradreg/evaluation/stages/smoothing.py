"""Certificates of the smoothed classifier."""

from typing import Any

import torch
from torch import Tensor

from gradreg.evaluation.record import Seen, Smoothed
from gradreg.evaluation.work import Work
from gradreg.progress import Progress
from gradreg.smoothing import certify


def smoothing(work: Work, sigma: float) -> Smoothed:
    """Certify every image under noise of one σ."""
    options, n = work.options, len(work.inputs.x)
    stage = f"smoothing.{sigma:g}.{options.smoothing_key(sigma)}"
    blank = {
        "prediction": torch.zeros(n, dtype=torch.int64),
        "radius": torch.zeros(n, dtype=torch.float64),
        "samples": torch.zeros(n, dtype=torch.int64),
        "frequency": torch.zeros(n, dtype=torch.float64),
    }

    def fill(columns: dict[str, Tensor], progress: Progress) -> None:
        if not len(work.rows):
            return
        certificates = certify(
            work.classifier,
            work.inputs.x,
            sigma=sigma,
            alpha=options.alpha,
            n=options.samples,
            radii=options.certified_radii,
            topk=options.topk,
            # Whether the true class stays among the first k is not a question about the most frequent one.
            labels=work.inputs.y if options.topk > 1 else None,
            seed=options.seed,
            shard=(work.processes.rank, work.processes.world),
            state=work.ledger.path(work.own(stage)),
            progress=progress,
        )
        for name, column in columns.items():
            column[work.rows] = getattr(certificates, name).cpu()

    found = work.per_image(stage, f"smoothing {sigma:g}", blank, fill)
    columns: dict[str, Any] = {**found.values, "seconds": found.seconds}
    columns["seen"] = Seen(columns.pop("frequency"))
    return Smoothed(sigma, options.alpha, options.samples, options.certified_radii, **columns)
