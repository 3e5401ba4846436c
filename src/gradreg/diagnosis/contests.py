"""Attacks against each other: a weaker one that wins shows that the stronger one was misled."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from gradreg.attacks import fmn, pgd, square
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.flags import Flag, graded

STEPS, QUERIES, DRAWS = 20, 300, 20
RADII = (0.25, 0.5, 1.0, 2.0, 4.0)
# Shares of the attacked images; a single image may always be luck, so at least `LEAST` are needed too.
ONE_STEP = RISING = 0.01
LOSSES = CONVERGED = 0.1
GRADIENT_FREE, UNBOUNDED = 0.02, 0.995
LEAST = 2
# How many times the usual steps an attack is given while it gains by them.
EFFORTS = (2, 4, 8)


@dataclass(frozen=True)
class Contest:
    """The correctly classified images of a case, attacked at several radii.

    Where the gradient attack breaks all images, or none, there is little to compare. So the contest is held at the
    radius of the curve at which it breaks nearest to half of them, the larger one if in doubt.
    """

    case: Case

    @cached_property
    def curve(self) -> list[Tensor]:
        """Broken by the gradient attack at each of the radii."""
        return [self.ascend(self.case, share * self.case.eps) for share in RADII]

    @cached_property
    def place(self) -> int:
        """Which of the radii the contest is held at."""
        half = len(self.case) / 2
        return min(range(len(RADII)), key=lambda at: (abs(int(self.curve[at].sum()) - half), -at))

    @property
    def eps(self) -> float:
        """The radius of the contest."""
        return RADII[self.place] * self.case.eps

    @property
    def margin(self) -> Tensor:
        """Broken by PGD on the margin; by FMN in l1, for which there is no PGD here."""
        return self.curve[self.place]

    @cached_property
    def ce(self) -> Tensor:
        """Broken by PGD on the cross entropy."""
        return self.case.broken_by(pgd, self.eps, steps=STEPS, rounds=1, loss="ce")

    @property
    def gradients(self) -> Tensor:
        """Broken by one of the two."""
        return self.margin if self.case.threat.name == "l1" else self.ce | self.margin

    @cached_property
    def free(self) -> Tensor:
        """Broken by Square attack, which sees scores only, of those that gradient attacks left."""
        return self._of_those_left(self.gradients, lambda case: case.broken_by(square, self.eps, steps=QUERIES))

    @property
    def broken(self) -> Tensor:
        """Broken within the case's ε by anything tried so far."""
        broken = self.curve[RADII.index(1.0)]
        if self.eps > self.case.eps:
            return broken
        return broken | self.gradients if self.case.threat.name == "l1" else broken | self.gradients | self.free

    def single_step_wins(self) -> Flag:
        """One step of the gradient's sign should not break more than twenty smaller ones."""
        once = self.case.broken_by(pgd, self.eps, steps=1, rounds=1, rel_step=1.0, loss="ce")
        finding = f"One step breaks {_of(once)} and {STEPS} steps break {_of(self.ce)}"
        return self._judge("single-step-wins", int(once.sum()) - int(self.ce.sum()), finding, ONE_STEP)

    def loss_matters(self) -> Flag:
        """Cross entropy and margin lead to about the same images, unless one of them saturates."""
        finding = f"PGD breaks {_of(self.ce)} with the cross entropy and {_of(self.margin)} with the margin"
        return self._judge("loss-matters", abs(int(self.ce.sum()) - int(self.margin.sum())), finding, LOSSES)

    def not_converged(self) -> Flag:
        """More steps should change nothing in the end: they are doubled until they do not."""
        broken, counts = self.margin, [int(self.margin.sum())]
        for effort in EFFORTS:
            more = self._of_those_left(broken, partial(self.ascend, eps=self.eps, effort=effort))
            broken, gained = broken | more, int(more.sum())
            counts.append(counts[-1] + gained)
            if gained <= CONVERGED * len(self.case):
                break
        steps = ", ".join(
            f"{count} with {STEPS * effort}" for count, effort in zip(counts, (1, *EFFORTS), strict=False)
        )
        finding = f"Of {len(self.case)} images the gradient attack breaks {steps} steps"
        return self._judge("not-converged", gained, finding, CONVERGED)

    def radius_does_not_help(self) -> Flag:
        """Success can only grow with the ball."""
        broken = [int(part.sum()) for part in self.curve]
        drop = max(before - after for place, before in enumerate(broken) for after in broken[place:])
        radii = (f"{share * self.case.eps:.3g}" for share in RADII)
        curve = ", ".join(f"{count} at {radius}" for count, radius in zip(broken, radii, strict=True))
        finding = f"Of {len(self.case)} images the gradient attack breaks {curve}"
        return self._judge("radius-does-not-help", drop, finding, RISING)

    def unbounded_attack_fails(self) -> Flag:
        """With the whole box to move in, every image can be turned into one of another class."""
        broken = self.ascend(self.case, self.whole_box, effort=2)
        share = int(broken.sum()) / len(self.case)
        finding = f"With the whole box to move in (ε = {self.whole_box:.3g}) the gradient attack breaks {_of(broken)}."
        return graded("unbounded-attack-fails", share, finding, error=UNBOUNDED, low=True, n=len(self.case))

    def noise_wins(self) -> Flag:
        """Random directions are the weakest attack there is."""
        case = self.case
        hit = torch.zeros(len(case), dtype=torch.bool, device=case.x.device)
        for draw in range(DRAWS):
            hit |= case.margin_at(case.inside(case.x + self.eps * case.direction(draw))) > 0
        missed = int((hit & ~self.gradients).sum())
        finding = f"{DRAWS} random perturbations break {_of(hit)}, {missed} of them missed by gradient attacks"
        return self._judge("noise-wins", missed, finding, 0.0, least=1)

    def gradient_free_wins(self) -> Flag:
        """What needs no gradients should find little that gradients missed."""
        missed, left = int(self.free.sum()), int((~self.gradients).sum())
        finding = (
            f"Square attack ({QUERIES} queries, no gradients) breaks {missed} of the {left} images that gradient "
            "attacks did not"
        )
        return self._judge("gradient-free-wins", missed, finding, GRADIENT_FREE, error=True)

    def ascend(self, case: Case, eps: float, effort: int = 1) -> Tensor:
        """The gradient attack with the margin, at a radius, with so many times the usual steps."""
        if case.threat.name == "l1":
            return case.broken_by(fmn, eps, steps=2 * STEPS * effort)
        return case.broken_by(pgd, eps, steps=STEPS * effort, rounds=1, loss="margin")

    @property
    def whole_box(self) -> float:
        """The radius of a ball around any image that holds the box."""
        low, high = self.case.classifier.box
        return (high - low) * float(self.case.threat.norm(torch.ones_like(self.case.x[:1])))

    def _of_those_left(self, broken: Tensor, run: Callable[[Case], Tensor]) -> Tensor:
        left = (~broken).nonzero().flatten()
        found = torch.zeros_like(broken)
        if len(left):
            found[left] = run(self.case.select(left))
        return found

    def _judge(
        self, code: str, images: int, finding: str, limit: float, *, least: int = LEAST, error: bool = False
    ) -> Flag:
        n = len(self.case)
        limit = max(limit, (least - 1) / n)
        where = "." if code == "radius-does-not-help" else f" (ε = {self.eps:.3g})."
        warn, fail = (None, limit) if error else (limit, None)
        return graded(code, images / n, finding + where, warn=warn, error=fail, images=images, n=n, radius=self.eps)


TESTS: dict[str, Callable[[Contest], Flag]] = {
    "radius-does-not-help": Contest.radius_does_not_help,
    "unbounded-attack-fails": Contest.unbounded_attack_fails,
    "single-step-wins": Contest.single_step_wins,
    "loss-matters": Contest.loss_matters,
    "not-converged": Contest.not_converged,
    "noise-wins": Contest.noise_wins,
    "gradient-free-wins": Contest.gradient_free_wins,
}
NOT_IN_L1 = ("single-step-wins", "loss-matters", "gradient-free-wins")


def applicable(case: Case) -> list[str]:
    """The tests for which there are attacks on this threat."""
    return [name for name in TESTS if case.threat.name != "l1" or name not in NOT_IN_L1]


def _of(broken: Tensor) -> str:
    return f"{int(broken.sum())} of {len(broken)} images"
