"""The result of an attack: a verified adversarial image and its distance per image, with the cost."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradreg.attacks.band import Band
from gradreg.checks.calls import validated
from gradreg.checks.tensors import check_batch, check_pixels, check_positions
from gradreg.config.fractions import radius_name
from gradreg.display import charts
from gradreg.display.curves import accuracy_chart
from gradreg.display.numbers import distance_name, percent
from gradreg.display.pictures import pictures
from gradreg.display.plot import plot
from gradreg.display.records import Column, Recorded, Records
from gradreg.display.summary import Shown, Summary, counted, images, spread
from gradreg.errors import DataError
from gradreg.norms import THREATS, robust_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A few images have no gradient in honest models too: all units of a layer may be off.
_FEW, _MANY = 1, 0.25


@dataclass(frozen=True, repr=False)
class AttackResult(Shown, Recorded):
    """The nearest adversarial image found for each image.

    `distance` is 0 for an image that is misclassified as it is and inf where nothing was found; in both cases
    `adversarial` is the clean image. Otherwise it lies in the box at exactly that distance and a fresh forward of it
    alone has misclassified it. `winner` names the attack that found it ("clean": none was needed, "": none succeeded).
    `eps` are the radii of a fixed-radius search: it stopped below each of them, so distances are not minimal then.
    """

    distance: Tensor
    adversarial: Tensor
    winner: tuple[str, ...]
    forwards: Tensor
    backwards: Tensor
    threat: str
    topk: int = 1
    eps: tuple[float, ...] | None = None
    quantize: int | None = None
    left_out: tuple[str, ...] = ()
    """Attacks of the suite that were not run, since they do not support the norm."""
    fresh: Tensor | None = None
    """Of a model that averages draws (`gradreg.Averaged`): whether `adversarial` is misclassified under fresh ones."""
    fresh_share: Tensor | None = None
    """The share of these fresh draws that misclassify `adversarial`, each by itself."""
    blind: Tensor | None = None
    """Images whose gradient was zero or not finite wherever an attack asked for it; None: not known."""
    left_early: Tensor | None = None
    """Images that were not given the whole suite, since they are outside of `band`; None: each was given it."""
    band: Band | None = None
    """How far outside of a radius images were left, and how often that can be wrong."""

    def __len__(self) -> int:
        return len(self.distance)

    @property
    def success(self) -> Tensor:
        """Images with an adversarial image, the misclassified ones included."""
        return self.distance.isfinite()

    @property
    def propagations(self) -> Tensor:
        """Forwards and backwards per image."""
        return self.forwards + self.backwards

    def robust(self, eps: float) -> Tensor:
        """Images for which no adversarial image was found within `eps`; this proves nothing."""
        return robust_at(self.distance, eps)

    def robust_accuracy(self, eps: float) -> float:
        """The fraction of images that remain robust within `eps`; at 0 it is the clean accuracy."""
        return int(self.robust(eps).sum()) / self._some()

    @property
    def doubt(self) -> str:
        """Why the distances say little, in a sentence: attacks that had no gradient to follow make a model look robust.

        "" unless that holds for more than one and a quarter of the images that are not misclassified, or for all.
        """
        return "" if self.blind is None else gradient_doubt(self.blind, self.distance)

    @validated
    def to(self, device: torch.device | str) -> "AttackResult":
        """The same result on another device."""
        return self._with(lambda tensor: tensor.to(device))

    def select(self, images: Tensor) -> "AttackResult":
        """The result for some of the images, in that order."""
        images = check_positions("images", images, len(self))
        rows = self._with(lambda tensor: tensor[images.to(tensor.device)])
        return replace(rows, winner=tuple(self.winner[i] for i in images.tolist()))

    @property
    def radii(self) -> tuple[float, ...]:
        """Where robust accuracy is quoted: the radii of the search, else the norm's usual ones, if it has any."""
        usual = THREATS[self.threat].usual_radii if self.threat in THREATS else ()
        return usual if self.eps is None else self.eps

    def summary(self) -> Summary:
        """Accuracy, distances, who found them and what that cost."""
        n, wrong = len(self), int((self.distance == 0).sum())
        robust = [f"{percent(self.robust_accuracy(eps))} at {radius_name(eps)}" for eps in self.radii] if n else []
        found = self.distance[(self.distance > 0) & self.success]
        settings = {"top-k": self.topk if self.topk > 1 else "", "bits per pixel": self.quantize or ""}
        return Summary(
            f"AttackResult: {images(n)}, {THREATS[self.threat].symbol if self.threat in THREATS else self.threat}",
            [
                ("clean accuracy", percent(1 - wrong / n) if n else ""),
                ("robust accuracy", ", ".join(robust)),
                ("distance", self._distances(found)),
                ("none found", counted(int((~self.success).sum()), n)),
                ("found by", ", ".join(f"{name} {count}" for name, count in self.wins.most_common())),
                ("propagations", f"{spread(self.propagations)} per image" if n else ""),
                ("settings", ", ".join(f"{name} {value}" for name, value in settings.items() if value)),
                ("left out", ", ".join(self.left_out)),
                ("left early", self._early()),
                ("fresh draws", self._under_fresh_draws()),
                ("warning", self.doubt),
            ],
        )

    @property
    def wins(self) -> Counter[str]:
        """How many adversarial images each attack found; the misclassified and the unbroken images are left out."""
        return Counter(name for name in self.winner if name not in ("clean", ""))

    def plot(self, x: Tensor | None = None) -> "Figure":
        """Robust accuracy against distance; with the clean images `x`, the adversarial ones beside them instead."""
        if x is not None:
            return self._pictures(x)
        self._some()
        symbol = THREATS[self.threat].symbol if self.threat in THREATS else self.threat
        radii = [(radius, radius_name(radius)) for radius in self.radii]
        chart = accuracy_chart(self.threat, symbol, {"attacks": (self.distance.cpu(), math.inf)}, radii)
        return plot(charts.Figure("robust-accuracy", ((chart,),), 2.25))

    def _some(self) -> int:
        if len(self) == 0:
            raise DataError("The result must be about at least one image for its accuracy; got none.")
        return len(self)

    def _pictures(self, x: Tensor) -> "Figure":
        if check_batch(x).shape != self.adversarial.shape:
            raise DataError(f"x must be the images that were attacked, {len(self)}; got shape {tuple(x.shape)}.")
        check_pixels(x)
        rows = ((self.distance > 0) & self.success).nonzero().flatten()
        if len(rows) == 0:
            raise DataError("There is no adversarial image to draw: none was found, or none was needed.")
        titles = [f"image {row}" for row in rows.tolist()]
        said = [f"{self.winner[row]}, {distance_name(self.threat, float(self.distance[row]))}" for row in rows.tolist()]
        return pictures(x[rows].cpu(), self.adversarial[rows].cpu(), titles, said)

    def records(self) -> Records:
        """Per image: distance, whether there is an adversarial image, who found it, and the cost."""
        facts = {"threat": self.threat, "topk": self.topk, "eps": self.eps, "quantize": self.quantize}
        if self.band is not None:
            facts |= {"band": asdict(self.band)}
        return Records(
            "attack",
            {**facts, "left_out": self.left_out},
            {
                "index": Column("Position among the images that were attacked.", torch.arange(len(self), device="cpu")),
                "distance": Column(
                    "Distance of the nearest adversarial image found, in the norm `threat`; 0: misclassified as it is.",
                    self.distance,
                    "pixels",
                    "None was found, which proves nothing.",
                ),
                "success": Column("An adversarial image is known, or the image is misclassified.", self.success),
                "winner": Column('Attack that found it; "clean": none was needed, "": none succeeded.', self.winner),
                "forwards": Column("Forwards spent on the image.", self.forwards, "propagations"),
                "backwards": Column("Backwards spent on the image.", self.backwards, "propagations"),
                **self._early_column(),
                **self._fresh_column(),
            },
        )

    def _fresh_column(self) -> dict[str, Column]:
        if self.fresh is None or self.fresh_share is None:
            return {}
        share = "Share of these draws that misclassify it, each by itself."
        return {
            "fresh": Column("The average of fresh draws of a randomised model misclassifies it.", self.fresh),
            "fresh_share": Column(share, self.fresh_share, "fraction"),
        }

    def _early_column(self) -> dict[str, Column]:
        words = "The image was not given the whole suite, since it is outside of the band."
        return {} if self.left_early is None else {"left_early": Column(words, self.left_early)}

    def _early(self) -> str:
        if self.left_early is None or self.band is None or not bool(self.left_early.any()):
            return ""
        return f"{counted(int(self.left_early.sum()), len(self))}, {self.band}"

    def _under_fresh_draws(self) -> str:
        if self.fresh is None or self.fresh_share is None:
            return ""
        adversarial = self.success & (self.distance > 0)
        words = f"{int((self.fresh & adversarial).sum())} of {int(adversarial.sum())} adversarial images misclassified"
        share = self.fresh_share[adversarial].double().mean() if adversarial.any() else None
        return words + ("" if share is None else f", on average by {percent(float(share))} of single draws")

    def _distances(self, found: Tensor) -> str:
        if len(found) == 0:
            return ""
        low, middle, high = (float(each) for each in (found.min(), found.median(), found.max()))
        return "median {1}, {0} to {2}".format(*(distance_name(self.threat, each) for each in (low, middle, high)))

    def _with(self, change: Callable[[Tensor], Tensor]) -> "AttackResult":
        return replace(
            self,
            distance=change(self.distance),
            adversarial=change(self.adversarial),
            forwards=change(self.forwards),
            backwards=change(self.backwards),
            fresh=None if self.fresh is None else change(self.fresh),
            fresh_share=None if self.fresh_share is None else change(self.fresh_share),
            blind=None if self.blind is None else change(self.blind),
            left_early=None if self.left_early is None else change(self.left_early),
        )


def gradient_doubt(blind: Tensor, distance: Tensor) -> str:
    """What is said where attacks had no gradient at many of the images that they were to attack; else ""."""
    images, attacked = int(blind.sum()), int((distance > 0).sum())
    if images == 0 or (images < attacked and images <= max(_FEW, _MANY * attacked)):
        return ""
    return (
        f"The model's gradient is zero or not finite at {images} of {attacked} correctly classified images, wherever "
        "attacks asked for it. They had nothing to follow, so these distances say little about robustness: attack the "
        "model without what rounds, saturates or detaches its logits; gradreg.diagnose tells more."
    )


def concatenate(results: Sequence[AttackResult]) -> AttackResult:
    """The results of consecutive batches as one."""
    early = [result.left_early for result in results if result.left_early is not None]
    return replace(
        results[0],
        distance=torch.cat([result.distance for result in results]),
        adversarial=torch.cat([result.adversarial for result in results]),
        forwards=torch.cat([result.forwards for result in results]),
        backwards=torch.cat([result.backwards for result in results]),
        blind=torch.cat([result.blind for result in results if result.blind is not None]),
        winner=tuple(name for result in results for name in result.winner),
        left_early=torch.cat(early) if early else None,
    )
