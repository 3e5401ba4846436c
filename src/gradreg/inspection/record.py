"""What an inspection of one image found, and how it is told."""

import math
from dataclasses import dataclass

from torch import Tensor

from gradreg.bounds import Bound
from gradreg.display.summary import Shown, Summary
from gradreg.smoothing import Certificates


@dataclass(frozen=True)
class Nearest:
    """What one attack found; without an adversarial image its distance is inf and `adversarial` the image itself."""

    attack: str
    distance: float
    adversarial: Tensor
    prediction: int
    forwards: int
    backwards: int


@dataclass(frozen=True, repr=False)
class Inspection(Shown):
    """All that is known of one image; distances, bounds and the gradient norm are about `threat`."""

    image: Tensor
    label: int
    prediction: int
    classes: tuple[str, ...]
    threat: str
    """The name of the norm."""
    symbol: str
    """The norm as it is written: l∞."""
    margin: float
    """Of probabilities: the k-th largest other class less the labelled one; negative: classified as labelled."""
    grad_norm: float
    """‖∇ℓ‖_* of that margin."""
    found: tuple[Nearest, ...]
    bound: Bound | None
    """Heuristic; None where there is none to give, and `refusal` says why."""
    refusal: str
    certificate: Certificates
    """Probabilistic, in l2 whatever the threat, and of the smoothed classifier."""
    topk: int = 1
    """The image is classified correctly while its label is among this many largest logits."""

    @property
    def nearest(self) -> float:
        """The smallest distance over all attacks."""
        return self.ranked[0].distance

    @property
    def ranked(self) -> list[Nearest]:
        """What the attacks found, the nearest first."""
        return sorted(self.found, key=lambda one: one.distance)

    def statements(self) -> tuple[str, str, str]:
        """What attacks found, what bounds promise and what is certified: three kinds of statements, a sentence each."""
        return self._empirical(), self._heuristic(), self._probabilistic()

    def summary(self) -> Summary:
        """The label, the margin and the three statements."""
        agreed = "classified so" if self.label == self.prediction else f"classified {self.classes[self.prediction]}"
        names = ("found", "heuristic", "certificate")
        found = [(name, text.partition(": ")[2]) for name, text in zip(names, self.statements(), strict=True)]
        margin = f"{self.margin:.3f}, gradient norm {self.grad_norm:.3g}"
        return Summary(f"Inspection: labelled {self.classes[self.label]}, {agreed}", [("margin", margin), *found])

    def _empirical(self) -> str:
        norm = self.symbol
        if self.nearest == 0:
            return f"Found: nothing to look for, since the image is taken for {self.classes[self.prediction]} as it is."
        if self.nearest == math.inf:
            return f"Found: no adversarial image by {len(self.found)} attacks, which proves nothing."
        best = self.ranked[0]
        beyond = "" if self.topk == 1 else f", its label not among the first {self.topk}"
        return f"Found: an adversarial image at {norm} {best.distance:.4g}, by {best.attack}{beyond}."

    def _heuristic(self) -> str:
        if self.bound is None:
            return f"Heuristic bounds: none. {self.refusal}"
        reached = ", the end of its grid" if bool(self.bound.censored) else ""
        norm = self.symbol
        return (
            f"Heuristic bounds, from estimates ({self.bound.method}) that can fail: none nearer than {norm} "
            f"{float(self.bound.omega):.4g} by the ω-bound{reached}, {float(self.bound.lipschitz):.4g} by the L-bound."
        )

    def _probabilistic(self) -> str:
        given = self.certificate
        about = f"σ = {given.settings.sigma:g}, wrong with probability {given.settings.alpha:g} at most"
        answer = int(given.prediction)
        if answer < 0:
            return f"Certificate of the smoothed classifier ({about}): it abstains."
        radius = f"{self.classes[answer]} within l2 {float(given.radius):.4g}"
        return f"Certificate of the smoothed classifier ({about}): {radius}."
