"""Certificates of the smoothed classifier."""

import torch

from gradreg.evaluation.record import Smoothed
from gradreg.evaluation.work import Work
from gradreg.smoothing import certify


def smoothing(work: Work, sigma: float) -> Smoothed:
    """Certificates of the smoothed classifier."""
    options, n = work.options, len(work.material.x)
    stage = f"smoothing.{sigma:g}.{options.smoothing_key(sigma)}"
    done = work.state.load(stage, Smoothed) if work.processes.first else None
    finished, timer = work.agreed(done is not None), work.state.timer(stage)
    if done is not None and work.processes.world == 1:
        return done
    parts = {
        "prediction": torch.zeros(n, dtype=torch.int64),
        "radius": torch.zeros(n, dtype=torch.float64),
        "samples": torch.zeros(n, dtype=torch.int64),
    }
    if done is not None:
        parts = {name: getattr(done, name) for name in parts}
    elif not finished and len(work.rows):
        with work.teller.bar(f"smoothing {sigma:g}") as report:
            certificates = certify(
                work.classifier,
                work.material.x,
                sigma=sigma,
                alpha=options.alpha,
                n=options.samples,
                radii=options.radii,
                seed=options.seed,
                shard=(work.processes.rank, work.processes.world),
                state=work.state.path(work.mine(stage)),
                progress=timer.watching(report),
            )
        for name, part in parts.items():
            part[work.rows] = getattr(certificates, name).cpu()
    whole = work.together(parts)
    seconds = timer.seconds if done is None else done.seconds
    found = Smoothed(sigma, options.alpha, options.samples, options.radii, **whole, seconds=seconds)
    if not finished:
        work.finish(stage, found)
    return found
