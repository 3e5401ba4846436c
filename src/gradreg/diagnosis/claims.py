"""What was claimed about the model, against adversarial images that are at hand."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gradreg.attacks import AttackResult, attack
from gradreg.bounds import Bound, violations
from gradreg.diagnosis.case import Case
from gradreg.diagnosis.flags import PROVEN_BUG, Flag, graded, make
from gradreg.errors import ConfigError, DataError
from gradreg.smoothing import Certificates

# Beyond float rounding of a distance; a contradiction must not be a matter of the last digit.
ABSOLUTE, RELATIVE = 1e-6, 1e-4
VIOLATED, BEATEN = 0.05, 0.02


@dataclass(frozen=True)
class Claims:
    """What a caller knows about the images from elsewhere; `sound` are radii proved for this very classifier."""

    attack_result: AttackResult | None = None
    sound: Tensor | None = None
    bound: Bound | None = None

    @property
    def names(self) -> list[str]:
        """What was passed to be compared."""
        given = {"attack_result": self.attack_result, "sound": self.sound, "bound": self.bound}
        return [name for name, claim in given.items() if claim is not None]

    def check(self, images: int, threat: str, topk: int) -> None:
        """Refuse claims about other images, another norm or another top-k."""
        result, sound, bound = self.attack_result, self.sound, self.bound
        if result is not None and (result.threat, result.topk) != (threat, topk):
            raise ConfigError(
                f"attack_result is of {result.threat}, top-{result.topk}, and the diagnosis of {threat}, top-{topk}: "
                "they need the same."
            )
        if bound is not None and bound.threat != threat:
            raise ConfigError(f"bound is of {bound.threat} and the diagnosis of {threat}: they need the same.")
        counts = {
            "attack_result": None if result is None else len(result),
            "sound": None if sound is None else len(sound),
            "bound": None if bound is None else len(bound.lipschitz),
        }
        for name, count in counts.items():
            if count is not None and count != images:
                raise DataError(f"{name} is about {count} images and x has {images}: pass it for the same images.")
        if sound is not None and (sound.ndim != 1 or bool(sound.isnan().any()) or bool((sound < 0).any())):
            raise DataError("sound is one radius ≥ 0 an image, but some are negative or NaN, or it is no such list.")

    def flags(self, case: Case, broken: Tensor) -> list[Flag]:
        """All comparisons; `case` is of all images, `broken` says which of the first of them other tests broke."""
        if not self.names:
            return []
        result = self.attack_result
        if result is None:
            quick = {"topk": case.topk, "seed": case.seed, "batch_size": case.batch_size}
            result = attack(case.classifier, case.x, case.y, threat=case.threat, attacks="quick", **quick)  # type: ignore[arg-type]
        result = result.to(case.x.device)
        holds = _reproduced(case, result)
        # Only what this model was just seen to get wrong counts against a claim about it.
        distance = result.distance.where(holds, torch.inf)
        found: list[Flag] = []
        if self.attack_result is not None:
            found += [_not_reproduced(result, holds), _given_attack_beaten(case, distance, broken)]
        if self.sound is not None:
            found.append(_contradicted(self.sound.to(distance.device), distance))
        if self.bound is not None:
            found.append(_bound_violated(self.bound, distance))
        return found


def smoothed_certificates(certificates: Certificates) -> Flag:
    """They are of the smoothed classifier, and these attacks are on the other one: there is nothing to compare."""
    settings = certificates.settings
    finding = (
        f"The {len(certificates)} certificates are of the classifier smoothed with σ = {settings.sigma:g}; attack "
        "distances here are of the classifier itself, and one below a certified radius contradicts nothing."
    )
    return make("smoothed-certificates", "info", finding, sigma=settings.sigma, alpha=settings.alpha)


def _reproduced(case: Case, result: AttackResult) -> Tensor:
    """Adversarial images that this model gets wrong when it is asked now, at the distance that was claimed.

    Where an image is misclassified as it is, the adversarial image is the clean one.
    """
    points = result.adversarial.to(case.x.dtype)
    near = case.threat.norm(points - case.x) <= result.distance * (1 + RELATIVE) + ABSOLUTE
    low, high = case.classifier.box
    boxed = ((points >= low) & (points <= high)).flatten(1).all(1)
    return result.success & near & boxed & (case.margin_at(points) > 0)


def _not_reproduced(result: AttackResult, holds: Tensor) -> Flag:
    claimed = int(result.success.sum())
    stale = claimed - int(holds.sum())
    finding = f"{stale} of the {claimed} adversarial images that were passed do not fool this model."
    return graded("not-reproduced", stale / max(claimed, 1), finding, error=0.0, images=stale, n=claimed)


def _given_attack_beaten(case: Case, distance: Tensor, broken: Tensor) -> Flag:
    """Images that withstood the attack that was passed, and fell to the tests' own short ones."""
    withstood = distance[: len(broken)] > case.eps
    beaten = int((withstood & broken).sum())
    finding = (
        f"The attack that was passed left {int(withstood.sum())} of {len(broken)} images unbroken at ε = "
        f"{case.eps:.3g}; the tests' own broke {beaten} of them."
    )
    limit = max(BEATEN, 1 / len(broken))
    return graded("given-attack-beaten", beaten / len(broken), finding, warn=limit, images=beaten, n=len(broken))


def _contradicted(sound: Tensor, distance: Tensor) -> Flag:
    """An adversarial image within a radius proved for the same classifier: one of the two is wrong, for certain."""
    inside = sound.double() > distance.double() * (1 + RELATIVE) + ABSOLUTE
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


def _bound_violated(bound: Bound, distance: Tensor) -> Flag:
    """The larger of the two heuristic bounds, as far as the attack can tell."""
    found = violations(bound.best, distance)
    finding = (
        f"Of {found.n} correctly classified images, {found.rate:.1%} have an adversarial image nearer than the "
        f"heuristic bound (worst ratio {found.worst_ratio:.3g})."
    )
    return graded("bound-violated", found.rate, finding, warn=VIOLATED, worst=found.worst_ratio, n=found.n)
