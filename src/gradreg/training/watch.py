"""Which epoch is the best and whether training has failed, by the held-out metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from gradreg.training.monitors import HeldOutMetrics

# Catastrophic overfitting: robust accuracy under the probe falls below this fraction of its best, while accuracy under
# a single step is at least as high as then and exceeds that under the probe by this gap.
_COLLAPSE = 0.5
_GAP = 0.2
# A network may predict a single class for a while during warm-up, but not for this many epochs in a row.
_CONSTANT_EPOCHS = 3


@dataclass(frozen=True)
class Failure:
    """A recognised failure of training, with one sentence of evidence and advice."""

    kind: Literal["divergence", "overfitting"]
    message: str


def diverged(epoch: int, by: str) -> Failure:
    """The loss or a weight is infinite or NaN."""
    return Failure(
        "divergence",
        f"Training diverged in epoch {epoch + 1}, by {by}: the loss or a weight is not finite; lower the "
        "learning rate, ramp the penalty up over more epochs, or set clip_norm.",
    )


def newest_is_best(history: Sequence[HeldOutMetrics], best: int | None) -> bool:
    """Whether the newest epoch replaces epoch number `best`, by the one-standard-error rule.

    The few images of a probe cannot tell apart scores within one standard error of the highest. Of those epochs, the
    one with the highest sum of clean accuracy and score is the best: by clean accuracy alone, a tenth of a point of it
    could cost the whole standard error.
    """
    highest = max(history, key=lambda metrics: metrics.score)
    newest, enough = history[-1], highest.score - highest.standard_error
    if best is None:
        return True
    kept = history[best]
    ahead = newest.clean + newest.score > kept.clean + kept.score
    return newest.score >= enough and (kept.score < enough or ahead)


def find_failure(history: Sequence[HeldOutMetrics]) -> Failure | None:
    """The failure that the metrics of all epochs so far show, if any."""
    if not isfinite(history[-1].held_out_loss):
        return diverged(len(history) - 1, "the end of it")
    recent = history[-_CONSTANT_EPOCHS:]
    if len(recent) == _CONSTANT_EPOCHS and all(metrics.commonest == 1 for metrics in recent):
        return Failure(
            "divergence",
            f"Training diverged: for {_CONSTANT_EPOCHS} epochs in a row every held-out image was predicted as the same "
            f"class, up to epoch {len(history)}; weaken the penalty, ramp it up, or lower the learning rate.",
        )
    return _overfitting(history)


def _overfitting(history: Sequence[HeldOutMetrics]) -> Failure | None:
    probed = [metrics for metrics in history if metrics.probe is not None and metrics.single_step is not None]
    if len(probed) < 2:
        return None
    now, best = probed[-1], max(probed[:-1], key=lambda metrics: metrics.probe or 0.0)
    assert now.probe is not None
    assert now.single_step is not None
    assert best.probe is not None
    assert best.single_step is not None
    collapsed = now.probe < _COLLAPSE * best.probe
    harmless = now.single_step >= best.single_step and now.single_step - now.probe >= _GAP
    if not (collapsed and harmless):
        return None
    return Failure(
        "overfitting",
        f"Catastrophic overfitting in epoch {len(history)}: accuracy under the probe fell from {best.probe:.1%} to "
        f"{now.probe:.1%} while accuracy after a single step rose to {now.single_step:.1%}; use a smaller h or eps, "
        "h_jitter, n-fgsm, or more attack steps.",
    )
