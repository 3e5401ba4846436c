"""What was claimed about the model, compared with adversarial images that are known."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gradreg.attacks import AttackResult, attack
from gradreg.bounds import Bound, chance_of, violations
from gradreg.checks.scalars import shown
from gradreg.checks.tensors import check_column
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.flags import PROVEN_BUG, Flag, graded, make
from gradreg.errors import ConfigError, DataError
from gradreg.smoothing import Certificates

# Beyond float rounding of a distance; a contradiction must not be a matter of the last digit.
_ABSOLUTE, _RELATIVE = 1e-6, 1e-4
_VIOLATED, _BEATEN, _BY_CHANCE = 0.05, 0.02, 0.01


@dataclass(frozen=True)
class Claims:
    """What the caller passed about the images; `sound` are radii proved for this very classifier."""

    attack_result: AttackResult | None = None
    sound: Tensor | None = None
    bound: Bound | None = None

    @property
    def names(self) -> list[str]:
        """The claims that were passed, by the name of the argument."""
        calibration = None if self.bound is None else self.bound.calibration
        given = {
            "attack_result": self.attack_result,
            "sound": self.sound,
            "bound": self.bound,
            "bound.calibration": calibration,
        }
        return [name for name, claim in given.items() if claim is not None]

    def check(self, images: int, threat: str, topk: int) -> None:
        """Refuse claims about other images, another threat or another top-k."""
        result, sound, bound = self.attack_result, self.sound, self.bound
        for name, claim, kind in (("attack_result", result, AttackResult), ("bound", bound, Bound)):
            if claim is not None and not isinstance(claim, kind):
                raise ConfigError(f"{name} must be of type {kind.__name__}; got {shown(claim)}.")
        if result is not None and (result.threat, result.topk) != (threat, topk):
            raise ConfigError(
                f"attack_result must be for {threat}, top-{topk}, like the diagnosis; got {result.threat}, "
                f"top-{result.topk}."
            )
        if bound is not None and bound.threat != threat:
            raise ConfigError(f"bound must be for {threat}, like the diagnosis; got {bound.threat}.")
        counts = {
            "attack_result": None if result is None else len(result),
            "sound": None if sound is None else len(check_column("sound", sound, least=0)),
            "bound": None if bound is None else len(bound.lipschitz),
        }
        for name, count in counts.items():
            if count is not None and count != images:
                raise DataError(f"{name} must have one entry per image of x, {images}; got {count}.")


@dataclass(frozen=True)
class Comparison:
    """Claims about all images of a case, next to the adversarial images that are known for them."""

    case: Case
    claims: Claims
    result: AttackResult
    """The attack that was passed, or a quick one."""
    broken: Tensor
    """Which of the first images the diagnosis's own attacks broke within ε."""

    @classmethod
    def of(cls, case: Case, claims: Claims, broken: Tensor) -> "Comparison":
        """Attack the images where no attack result was passed."""
        result = claims.attack_result
        if result is None:
            result = attack(
                case.classifier,
                case.x,
                case.y,
                threat=case.threat,
                attacks="quick",
                topk=case.topk,
                seed=case.seed,
                batch_size=case.batch_size,
                progress=False,
            )
        return cls(case, claims, result.to(case.x.device), broken)

    @cached_property
    def reproduced(self) -> Tensor:
        """Adversarial images that this model misclassifies now, at the distance that was claimed.

        Where an image is misclassified as it is, the adversarial image is the clean one.
        """
        case, result = self.case, self.result
        points = result.adversarial.to(case.x.dtype)
        near = case.threat.norm(points - case.x) <= result.distance * (1 + _RELATIVE) + _ABSOLUTE
        low, high = case.classifier.box
        boxed = ((points >= low) & (points <= high)).flatten(1).all(1)
        return result.success & near & boxed & (case.margin_at(points) > 0)

    @property
    def distance(self) -> Tensor:
        """Distances of reproduced adversarial images: only these count against a claim about this model."""
        return self.result.distance.where(self.reproduced, torch.inf)


def smoothed_certificates(certificates: Certificates) -> Flag:
    """Certificates are of the smoothed classifier and attacks here of the base classifier: they are not comparable."""
    settings = certificates.settings
    finding = (
        f"The {len(certificates)} certificates are of the classifier smoothed with σ = {settings.sigma:g}; attack "
        "distances here are of the classifier itself, and one below a certified radius contradicts nothing."
    )
    return make("smoothed-certificates", "info", finding, sigma=settings.sigma, alpha=settings.alpha)


def not_reproduced(found: Comparison) -> Flag:
    """Adversarial images that were passed and do not fool this model."""
    claimed = int(found.result.success.sum())
    stale = claimed - int(found.reproduced.sum())
    finding = f"{stale} of the {claimed} adversarial images that were passed do not fool this model."
    return graded("not-reproduced", stale / max(claimed, 1), finding, error=0.0, images=stale, n=claimed)


def given_attack_beaten(found: Comparison) -> Flag:
    """Images that remained robust to the attack that was passed, and not to the diagnosis's own short attacks."""
    broken, eps = found.broken, found.case.eps
    robust = found.distance[: len(broken)] > eps
    beaten = int((robust & broken).sum())
    finding = (
        f"The attack that was passed left {int(robust.sum())} of {len(broken)} images unbroken at ε = "
        f"{eps:.3g}; the tests' own broke {beaten} of them."
    )
    limit = max(_BEATEN, 1 / len(broken))
    return graded("given-attack-beaten", beaten / len(broken), finding, warn=limit, images=beaten, n=len(broken))


def certificate_contradicted(found: Comparison) -> Flag:
    """An adversarial image within a radius proved for the same classifier: one of the two is wrong, for certain."""
    distance = found.distance
    assert found.claims.sound is not None
    sound = found.claims.sound.to(distance.device)
    inside = sound.double() > distance.double() * (1 + _RELATIVE) + _ABSOLUTE
    images = int(inside.sum())
    finding = (
        f"{images} of {len(sound)} images have a verified adversarial image within the radius proved to hold none."
    )
    evidence: dict[str, float | int] = {"value": images, "n": len(sound)}
    if images:
        first = int(inside.nonzero()[0])
        finding += (
            f" The first is image {first}: {float(distance[first]):.6g} away, proved up to {float(sound[first]):.6g}."
        )
        evidence |= {"image": first, "distance": float(distance[first]), "radius": float(sound[first])}
    return make(PROVEN_BUG, "error" if images else "info", finding, **evidence)


def bound_violated(found: Comparison) -> Flag:
    """The larger of the two heuristic bounds, against the distances that the attack found."""
    assert found.claims.bound is not None
    seen = violations(found.claims.bound.best, found.distance)
    if seen.n == seen.unbroken:
        said = "were broken" if seen.n else "are classified correctly"
        return make("bound-violated", "info", f"No images {said}, so no bound can be violated.", value=0, n=seen.n)
    finding = (
        f"Of {seen.n} correctly classified images, {seen.rate:.1%} have an adversarial image nearer than the "
        f"heuristic bound (worst ratio {seen.worst_ratio:.3g})."
    )
    return graded("bound-violated", seen.rate, finding, warn=_VIOLATED, worst=seen.worst_ratio, n=seen.n)


def calibration_violated(found: Comparison) -> Flag:
    """The calibrated bound, against the distances that the attack found: α allows some violations, and chance more."""
    bound = found.claims.bound
    assert bound is not None
    assert bound.calibration is not None
    assert bound.calibrated is not None
    seen = violations(bound.calibrated, found.distance, kind="calibrated")
    violated = round(seen.rate * seen.n) if seen.n else 0
    chance = chance_of(violated, seen.n, bound.calibration)
    finding = (
        f"{violated} of {seen.n} correctly classified images have an adversarial image nearer than the calibrated "
        f"bound, where α = {bound.calibration.alpha:g} allows {bound.calibration.alpha * seen.n:.3g}: the probability "
        f"of as many or more is {chance:.2g}."
    )
    return graded(
        "calibration-violated", chance, finding, warn=_BY_CHANCE, low=True, images=violated, n=seen.n,
        alpha=bound.calibration.alpha,
    )  # fmt: skip
