"""Which epoch is the best, and whether training has gone wrong, from what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from gradreg.training.monitors import Reading

# Catastrophic overfitting: the probe's accuracy falls below this share of its best while single steps look harmless.
COLLAPSE = 0.5
GAP = 0.2
# A network may predict one class for a while at the start, in a warm-up; not for this many epochs in a row.
CONSTANT_EPOCHS = 3


@dataclass(frozen=True)
class Trouble:
    """What went wrong: its name, and one sentence with the evidence and what helps."""

    kind: Literal["divergence", "overfitting"]
    sentence: str


def not_finite(epoch: int, by: str) -> Trouble:
    """The loss or a weight is infinite or NaN."""
    return Trouble(
        "divergence",
        f"Training diverged in epoch {epoch + 1}, by {by}: the loss or a weight is not finite; lower the "
        "learning rate, ramp the penalty up over more epochs, or set clip_norm.",
    )


def newest_is_best(readings: Sequence[Reading], best: int | None) -> bool:
    """Whether the newest epoch takes the place of number `best`: the rule of one standard error.

    Of the epochs whose score is within one standard error of the highest, which the few images of a probe cannot tell
    apart, the one with the highest clean accuracy is the best.
    """
    highest = max(readings, key=lambda reading: reading.score)
    newest, enough = readings[-1], highest.score - highest.standard_error
    if best is None:
        return True
    kept = readings[best]
    return newest.score >= enough and (kept.score < enough or newest.clean > kept.clean)


def trouble(readings: Sequence[Reading]) -> Trouble | None:
    """What the readings of all epochs so far show, if anything."""
    if not isfinite(readings[-1].held_out_loss):
        return not_finite(len(readings) - 1, "the end of it")
    recent = readings[-CONSTANT_EPOCHS:]
    if len(recent) == CONSTANT_EPOCHS and all(reading.commonest == 1 for reading in recent):
        return Trouble(
            "divergence",
            f"Training diverged: for {CONSTANT_EPOCHS} epochs in a row every held-out image was given the same class, "
            f"the last time in epoch {len(readings)}; weaken the penalty, ramp it up, or lower the learning rate.",
        )
    return _overfitting(readings)


def _overfitting(readings: Sequence[Reading]) -> Trouble | None:
    probed = [reading for reading in readings if reading.probe is not None and reading.single_step is not None]
    if len(probed) < 2:
        return None
    now, best = probed[-1], max(probed[:-1], key=lambda reading: reading.probe or 0.0)
    assert now.probe is not None
    assert now.single_step is not None
    assert best.probe is not None
    assert best.single_step is not None
    collapsed = now.probe < COLLAPSE * best.probe
    harmless = now.single_step >= best.single_step and now.single_step - now.probe >= GAP
    if not (collapsed and harmless):
        return None
    return Trouble(
        "overfitting",
        f"Catastrophic overfitting in epoch {len(readings)}: accuracy under the probe fell from {best.probe:.1%} to "
        f"{now.probe:.1%} while accuracy after a single step rose to {now.single_step:.1%}; use a smaller h or eps, "
        "h_jitter, n-fgsm, or more attack steps.",
    )
