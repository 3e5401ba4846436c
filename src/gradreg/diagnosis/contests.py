"""Attacks against each other: a weaker attack that wins shows that the stronger one was misled."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from gradreg.attacks.pgd import pgd
from gradreg.attacks.run import Attack
from gradreg.attacks.square import square
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.flags import Flag, graded

_STEPS, _QUERIES, _DRAWS = 20, 300, 20
_RADII = (0.25, 0.5, 1.0, 2.0, 4.0)
# Fractions of the attacked images; a single image may be luck, so at least `_LEAST` are needed too.
_ONE_STEP = _RISING = 0.01
_LOSSES = _CONVERGED = 0.1
_GRADIENT_FREE, _UNBOUNDED = 0.02, 0.995
_LEAST = 2
# Multiples of the usual steps, tried one after the other while an attack gains by them.
_EFFORTS = (2, 4, 8)


@dataclass(frozen=True)
class Contest:
    """The correctly classified images of a case, attacked at several radii.

    Where the gradient attack breaks all images, or none, there is little to compare. So the contest is held at the
    radius at which it breaks nearest to half of them, the larger one in a tie.
    """

    case: Case

    @cached_property
    def curve(self) -> list[Tensor]:
        """Broken by the gradient attack at each of the radii."""
        return [self.ascend(self.case, share * self.case.eps) for share in _RADII]

    @cached_property
    def place(self) -> int:
        """Which of the radii the contest is held at."""
        half = len(self.case) / 2
        return min(range(len(_RADII)), key=lambda at: (abs(int(self.curve[at].sum()) - half), -at))

    @property
    def eps(self) -> float:
        """The radius of the contest."""
        return _RADII[self.place] * self.case.eps

    @property
    def margin(self) -> Tensor:
        """Broken by PGD on the margin."""
        return self.curve[self.place]

    @cached_property
    def ce(self) -> Tensor:
        """Broken by PGD on the cross entropy."""
        return self.case.broken_by(pgd, self.eps, steps=_STEPS, rounds=1, loss="ce")

    @property
    def gradients(self) -> Tensor:
        """Broken by one of the two."""
        return self.ce | self.margin

    @cached_property
    def free(self) -> Tensor:
        """Broken by Square attack, which sees scores only, among the images that gradient attacks left."""
        return self.of_those_left(self.gradients, lambda case: case.broken_by(square, self.eps, steps=_QUERIES))

    @property
    def broken(self) -> Tensor:
        """Broken within the case's ε by anything tried so far."""
        broken = self.curve[_RADII.index(1.0)]
        if self.eps > self.case.eps:
            return broken
        return broken | self.gradients | self.free if self.supports(square) else broken | self.gradients

    def ascend(self, case: Case, eps: float, effort: int = 1) -> Tensor:
        """The gradient attack on the margin within `eps`, with `effort` times the usual steps."""
        return case.broken_by(pgd, eps, steps=_STEPS * effort, rounds=1, loss="margin")

    @property
    def whole_box(self) -> float:
        """The radius of a ball around any image that holds the box."""
        low, high = self.case.classifier.box
        return (high - low) * float(self.case.threat.norm(torch.ones_like(self.case.x[:1])))

    def supports(self, attack: Attack) -> bool:
        """Whether the attack exists for this threat."""
        return attack.supports(self.case.threat)

    def of_those_left(self, broken: Tensor, run: Callable[[Case], Tensor]) -> Tensor:
        """What `run` breaks among the images that are not `broken` yet."""
        left = (~broken).nonzero().flatten()
        found = torch.zeros_like(broken)
        if len(left):
            found[left] = run(self.case.select(left))
        return found

    def judge(
        self, code: str, images: int, finding: str, limit: float, *, least: int = _LEAST, error: bool = False
    ) -> Flag:
        """A flag for a number of images, as a fraction of all of them."""
        n = len(self.case)
        limit = max(limit, (least - 1) / n)
        where = "." if code == "radius-does-not-help" else f" (ε = {self.eps:.3g})."
        warn, fail = (None, limit) if error else (limit, None)
        return graded(code, images / n, finding + where, warn=warn, error=fail, images=images, n=n, radius=self.eps)


def single_step_wins(contest: Contest) -> Flag:
    """One step of the gradient's sign should not break more than twenty smaller ones."""
    once = contest.case.broken_by(pgd, contest.eps, steps=1, rounds=1, rel_step=1.0, loss="ce")
    finding = f"One step breaks {_of(once)} and {_STEPS} steps break {_of(contest.ce)}"
    return contest.judge("single-step-wins", int(once.sum()) - int(contest.ce.sum()), finding, _ONE_STEP)


def loss_matters(contest: Contest) -> Flag:
    """Cross entropy and margin lead to about the same images, unless one of them saturates."""
    finding = f"PGD breaks {_of(contest.ce)} with the cross entropy and {_of(contest.margin)} with the margin"
    return contest.judge("loss-matters", abs(int(contest.ce.sum()) - int(contest.margin.sum())), finding, _LOSSES)


def not_converged(contest: Contest) -> Flag:
    """More steps should change nothing in the end: they are doubled until they do not."""
    broken, counts = contest.margin, [int(contest.margin.sum())]
    for effort in _EFFORTS:
        more = contest.of_those_left(broken, partial(contest.ascend, eps=contest.eps, effort=effort))
        broken, gained = broken | more, int(more.sum())
        counts.append(counts[-1] + gained)
        if gained <= _CONVERGED * len(contest.case):
            break
    steps = ", ".join(f"{count} with {_STEPS * effort}" for count, effort in zip(counts, (1, *_EFFORTS), strict=False))
    finding = f"Of {len(contest.case)} images the gradient attack breaks {steps} steps"
    return contest.judge("not-converged", gained, finding, _CONVERGED)


def radius_does_not_help(contest: Contest) -> Flag:
    """Success can only grow with the ball."""
    broken = [int(part.sum()) for part in contest.curve]
    drop = max(before - after for place, before in enumerate(broken) for after in broken[place:])
    radii = (f"{share * contest.case.eps:.3g}" for share in _RADII)
    curve = ", ".join(f"{count} at {radius}" for count, radius in zip(broken, radii, strict=True))
    finding = f"Of {len(contest.case)} images the gradient attack breaks {curve}"
    return contest.judge("radius-does-not-help", drop, finding, _RISING)


def unbounded_attack_fails(contest: Contest) -> Flag:
    """With the whole box to move in, every image can be turned into one of another class."""
    broken = contest.ascend(contest.case, contest.whole_box, effort=2)
    share = int(broken.sum()) / len(contest.case)
    finding = f"With the whole box to move in (ε = {contest.whole_box:.3g}) the gradient attack breaks {_of(broken)}."
    return graded("unbounded-attack-fails", share, finding, error=_UNBOUNDED, low=True, n=len(contest.case))


def noise_wins(contest: Contest) -> Flag:
    """Random directions are the weakest attack there is."""
    case = contest.case
    hit = torch.zeros(len(case), dtype=torch.bool, device=case.x.device)
    for draw in range(_DRAWS):
        hit |= case.margin_at(case.inside(case.x + contest.eps * case.direction(draw))) > 0
    missed = int((hit & ~contest.gradients).sum())
    finding = f"{_DRAWS} random perturbations break {_of(hit)}, {missed} of them missed by gradient attacks"
    return contest.judge("noise-wins", missed, finding, 0.0, least=1)


def gradient_free_wins(contest: Contest) -> Flag:
    """An attack without gradients should find little that gradient attacks missed."""
    missed, left = int(contest.free.sum()), int((~contest.gradients).sum())
    finding = (
        f"Square attack ({_QUERIES} queries, no gradients) breaks {missed} of the {left} images that gradient "
        "attacks did not"
    )
    return contest.judge("gradient-free-wins", missed, finding, _GRADIENT_FREE, error=True)


def _of(broken: Tensor) -> str:
    return f"{int(broken.sum())} of {len(broken)} images"
