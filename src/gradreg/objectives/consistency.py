"""One step from a start, with both graphs: for objectives that also keep the answers at both ends together."""

from dataclasses import dataclass

from torch import Tensor, nn

from gradreg.calling.targets import Target
from gradreg.norms import Threat
from gradreg.objectives.base import Moment
from gradreg.penalty.passes import Calls


@dataclass(frozen=True)
class Ends:
    """Where a step began and ended: the gradient and the logits at the start, and the losses and logits at its end."""

    gradient: Tensor
    start: Tensor
    losses: Tensor
    logits: Tensor


def one_step(
    model: nn.Module,
    x: Tensor,
    start: Tensor,
    y: Target,
    at: Moment,
    geometry: Threat,
    *,
    step: float,
    radius: float | None,
    clip: bool,
) -> Ends:
    """Steepest ascent by `step` from `start`, and back into the ball around x if there is a radius: 7F to train on.

    Running statistics and whatever else a pass moves are moved once, by the start; both passes see the same dropout.
    """
    calls = Calls(model, at.criterion, "train", "keep", at.output)
    part = calls.record(start.clamp(0, 1) if clip else start, y)
    gradient, _, begun = part.input_gradient_and_answer()
    calls.check_graphs_can_be_kept("objectives with two ends", "take another objective, or the checkpointing out")
    moved = part.at + step * geometry.ascent(gradient)
    moved = moved if radius is None else x + geometry.retract(moved - x, radius)
    losses, logits = calls.answer_again(part, (moved.clamp(0, 1) if clip else moved).detach())
    return Ends(gradient, begun, losses, logits)
