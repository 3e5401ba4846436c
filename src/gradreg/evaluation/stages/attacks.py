"""The nearest adversarial image of each image, over all attacks."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.attacks import AttackResult, attack
from gradreg.attacks.result import gradient_doubt
from gradreg.attacks.suite import ATTACKS
from gradreg.columns import check_whole
from gradreg.errors import silenced
from gradreg.evaluation.fresh import FreshDraws
from gradreg.evaluation.gallery import Gallery, Segment
from gradreg.evaluation.record import Attacked
from gradreg.evaluation.stages import fresh
from gradreg.evaluation.work import Work
from gradreg.losses import probability_margin
from gradreg.norms import Threat
from gradreg.precision import at_least_single
from gradreg.progress import Progress

# The diagnosis tests the first images; their adversarial images are kept for it.
KEPT = 128
# Pictures kept for the report: at least so many, and at most, of up to so many bytes.
_FEWEST, _MOST, _BYTES = 8, 24, 1_000_000
# Places on the way from an image through its adversarial one: a third of them beyond it.
_PLACES = tuple(step / 16 for step in range(25))

_WINNERS = ("", "clean", *ATTACKS)
_COUNTED = ("distance", "forwards", "backwards")


@dataclass(frozen=True)
class Attacks:
    """What the attacks found, with the adversarial images of the first images."""

    attacked: Attacked
    adversarial: Tensor
    blind: Tensor
    """Images whose gradient was zero or not finite wherever an attack asked for it."""
    fresh: FreshDraws | None = None
    """Of a model that averages draws: its answers to the adversarial images of all images under fresh ones."""

    def result(self, threat: Threat, topk: int, device: torch.device) -> AttackResult:
        """The first images' part, as attacks return it."""
        n = len(self.adversarial)
        found = self.attacked
        counts = found.forwards[:n], found.backwards[:n]
        return AttackResult(found.distance[:n], self.adversarial, found.winner[:n], *counts, threat.name, topk).to(
            device
        )


def attacks(work: Work, threat: Threat) -> Attacks:
    """Run the suite in one threat."""
    stage, x = f"attacks.{threat.name}", work.inputs.x
    n, dtype = len(x), at_least_single(x.dtype)
    blank = {
        "distance": torch.zeros(n, dtype=dtype),
        "forwards": torch.zeros(n, dtype=torch.int64),
        "backwards": torch.zeros(n, dtype=torch.int64),
        "winner": torch.zeros(n, dtype=torch.int64),
        "blind": torch.zeros(n, dtype=torch.bool),
        "adversarial": torch.zeros(min(KEPT, n), *x.shape[1:], dtype=dtype),
    }
    blank |= fresh.blank(work, n)

    def fill(columns: dict[str, Tensor], progress: Progress) -> None:
        if len(work.rows):
            _enter(columns, work.rows, _attack(work, threat, stage, progress))

    found = work.per_image(stage, f"attacks {threat.name}", blank, fill, late=("blind",))
    check_whole("winner", found.values["winner"], n, 0, len(_WINNERS) - 1)
    winner = tuple(_WINNERS[code] for code in found.values["winner"].tolist())
    attacked = Attacked(**{name: found.values[name] for name in _COUNTED}, winner=winner, seconds=found.seconds)
    return Attacks(attacked, found.values["adversarial"], found.values["blind"], fresh.taken(work, found.values))


def without_gradients(found: Attacks, norm: Threat) -> str:
    """That attacks had no gradient to follow at many images, as a sentence; "" if they had."""
    doubt = gradient_doubt(found.blind, found.attacked.distance)
    return f"In {norm.symbol}: {doubt}" if doubt else ""


def _attack(work: Work, threat: Threat, stage: str, progress: Progress) -> AttackResult:
    x, y, rows = work.inputs.x, work.inputs.y, work.rows.to(work.inputs.x.device)
    with silenced():  # it is said once, of all images, by a note
        found = attack(
            work.classifier,
            x[rows],
            y[rows],
            threat=threat,
            attacks=work.options.attacks_chosen,
            topk=work.options.topk,
            seed=work.options.seed,
            batch_size=work.options.batch_size,
            resume=work.ledger.path(work.own(stage)),
            progress=progress,
        )
    return found.to("cpu")


def _enter(columns: dict[str, Tensor], rows: Tensor, result: AttackResult) -> None:
    for name in _COUNTED:
        columns[name][rows] = getattr(result, name)
    if result.blind is not None:
        columns["blind"][rows] = result.blind
    if result.fresh is not None and result.fresh_share is not None:
        fresh.enter(columns, rows, result.fresh, result.fresh_share)
    columns["winner"][rows] = torch.tensor([_WINNERS.index(name) for name in result.winner])
    first = rows < len(columns["adversarial"])
    columns["adversarial"][rows[first]] = result.adversarial[first]


def gallery(work: Work, found: Attacks) -> Gallery | None:
    """The first images with an adversarial one, beside it."""
    distance = found.attacked.distance[: len(found.adversarial)]
    size = 2 * found.adversarial[:1].numel() * found.adversarial.element_size()
    most = max(_FEWEST, min(_MOST, _BYTES // max(1, size)))
    rows = ((distance > 0) & distance.isfinite()).nonzero().flatten()[:most]
    if len(rows) == 0:
        return None
    adversarial = found.adversarial[rows]
    there = rows.to(work.inputs.x.device)
    with torch.no_grad():
        logits = work.classifier(adversarial.to(there.device))
    # They were verified to be misclassified, but so narrowly that another batch may round the other way.
    rival = logits.scatter(1, work.inputs.y[there, None], -torch.inf).argmax(1)
    clean = work.inputs.x[there].cpu().to(adversarial.dtype)
    segment = _segment(work, clean, adversarial, work.inputs.y[there])
    return Gallery(tuple(rows.tolist()), clean, adversarial, tuple(rival.tolist()), segment)


def _segment(work: Work, clean: Tensor, adversarial: Tensor, labels: Tensor) -> Segment:
    """The margin along the way, place by place."""
    margins = []
    for place in _PLACES:
        images = (clean + place * (adversarial - clean)).clamp(0, 1)
        with torch.no_grad():
            logits = [work.classifier(part.to(labels.device)) for part in images.split(work.options.batch_size)]
        margins.append(probability_margin(torch.cat(logits), labels, work.options.topk).float().cpu())
    return Segment(_PLACES, torch.stack(margins, dim=1))
