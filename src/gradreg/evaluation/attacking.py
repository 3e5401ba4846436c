"""The model's answers to the images as they are, and the nearest adversarial images."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.attacks import AttackResult, attack
from gradreg.attacks.run import Progress
from gradreg.attacks.suite import ATTACKS
from gradreg.evaluation.record import Attacked, Gallery
from gradreg.evaluation.work import Work
from gradreg.losses import probability_margin
from gradreg.norms import ThreatName
from gradreg.precision import at_least_single

# Images that the diagnosis looks at; their adversarial images are kept for it.
KEPT = 128
GALLERY = 8

_WINNERS = ("", "clean", *ATTACKS)


@dataclass(frozen=True)
class Clean:
    """What the model makes of the images as they are; `errors` of `images` if the whole test set was run through."""

    prediction: Tensor
    margin: Tensor
    errors: int | None
    images: int


def clean(work: Work) -> Clean:
    """One forward of each image."""
    done = work.state.load("clean", Clean)
    if done is not None:
        return done
    x, y, whole, size = work.material.x, work.material.y, work.material.whole, work.options.batch_size
    logits = torch.cat([work.classifier.check(a, b) for a, b in zip(x.split(size), y.split(size), strict=True)])
    errors = None
    if whole is not None:
        errors = 0
        for start in range(0, work.material.total, size):
            images, labels = (part.to(x.device) for part in whole(slice(start, start + size)))
            errors += int((work.classifier.check(images, labels).argmax(1) != labels).sum())
    found = Clean(logits.argmax(1).cpu(), probability_margin(logits, y).cpu(), errors, work.material.total)
    work.state.save("clean", found)
    return found


@dataclass(frozen=True)
class Attacks:
    """What the attacks found, with the adversarial images of the first images."""

    attacked: Attacked
    adversarial: Tensor

    def result(self, threat: ThreatName, device: torch.device) -> AttackResult:
        """The first images' part, as attacks return it."""
        n = len(self.adversarial)
        found = self.attacked
        counts = found.forwards[:n], found.backwards[:n]
        return AttackResult(found.distance[:n], self.adversarial, found.winner[:n], *counts, threat).to(device)


def attacks(work: Work, threat: ThreatName) -> Attacks:
    """The nearest adversarial images."""
    stage, x = f"attacks.{threat}", work.material.x
    done = work.state.load(stage, Attacks) if work.processes.first else None
    finished, timer = work.agreed(done is not None), work.state.timer(stage)
    if done is not None and work.processes.world == 1:
        return done
    n, kept = len(x), min(KEPT, len(x))
    parts = {
        "distance": torch.zeros(n, dtype=at_least_single(x.dtype)),
        "forwards": torch.zeros(n, dtype=torch.int64),
        "backwards": torch.zeros(n, dtype=torch.int64),
        "winner": torch.zeros(n, dtype=torch.int64),
        "adversarial": torch.zeros(kept, *x.shape[1:], dtype=at_least_single(x.dtype)),
    }
    if done is not None:
        codes = torch.tensor([_WINNERS.index(name) for name in done.attacked.winner])
        parts = {name: getattr(done.attacked, name) for name in ("distance", "forwards", "backwards")}
        parts |= {"winner": codes, "adversarial": done.adversarial}
    elif not finished and len(work.rows):
        with work.teller.bar(f"attacks {threat}") as report:
            _fill(parts, work.rows, _attack(work, threat, stage, timer.watching(report)))
    whole = work.together(parts)
    winner = tuple(_WINNERS[code] for code in whole.pop("winner").tolist())
    adversarial = whole.pop("adversarial")
    seconds = timer.seconds if done is None else done.attacked.seconds
    found = Attacks(Attacked(**whole, winner=winner, seconds=seconds), adversarial)
    if not finished:
        work.finish(stage, found)
    return found


def _attack(work: Work, threat: ThreatName, stage: str, report: Progress) -> AttackResult:
    x, y, rows = work.material.x, work.material.y, work.rows.to(work.material.x.device)
    return attack(
        work.classifier,
        x[rows],
        y[rows],
        threat=threat,
        attacks=work.options.attacks,
        seed=work.options.seed,
        batch_size=work.options.batch_size,
        resume=work.state.path(work.mine(stage)),
        progress=report,
    ).to("cpu")


def _fill(parts: dict[str, Tensor], rows: Tensor, result: AttackResult) -> None:
    for name in ("distance", "forwards", "backwards"):
        parts[name][rows] = getattr(result, name)
    parts["winner"][rows] = torch.tensor([_WINNERS.index(name) for name in result.winner])
    first = rows < len(parts["adversarial"])
    parts["adversarial"][rows[first]] = result.adversarial[first]


def gallery(work: Work, found: Attacks) -> Gallery | None:
    """The first images that could be broken, beside what broke them."""
    distance = found.attacked.distance[: len(found.adversarial)]
    rows = ((distance > 0) & distance.isfinite()).nonzero().flatten()[:GALLERY]
    if len(rows) == 0:
        return None
    adversarial = found.adversarial[rows]
    there = rows.to(work.material.x.device)
    with torch.no_grad():
        logits = work.classifier(adversarial.to(there.device))
    # They were verified to be misclassified, but by a hair, which another batch may round the other way.
    rival = logits.scatter(1, work.material.y[there, None], -torch.inf).argmax(1)
    clean = work.material.x[there].cpu().to(adversarial.dtype)
    return Gallery(tuple(rows.tolist()), clean, adversarial, tuple(rival.tolist()))
