"""The per-image minimum over attacks, runs, processes and files, and who found it."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradreg.attacks.result import AttackResult
from gradreg.attacks.theirs import verified
from gradreg.checks.calls import validated
from gradreg.checks.objects import check_kind, check_several
from gradreg.checks.scalars import check_count, shown
from gradreg.checks.tensors import check_batch, check_positions
from gradreg.codec import join
from gradreg.columns import check_bools, check_floats, check_number, check_pixels, check_whole
from gradreg.errors import ConfigError, DataError
from gradreg.norms import Threat, ThreatName
from gradreg.penalty.passes import Model
from gradreg.reading import one_sentence
from gradreg.storage import read, write

_KIND = "pool of attack results"
_TENSORS = ("distance", "adversarial", "forwards", "backwards")
# The box of a result is its classifier's, which nobody tells a pool.
_FINITE = (-sys.float_info.max, sys.float_info.max)
# Truth values per image that a result may have or not.
_NOTED = ("blind", "left_early")


class Pool:
    """The best known adversarial image of each of `images` images; grows with `update` and `merge`.

    Positions are those of the whole data set, so pools of different shards of it merge. Costs add up. `about` says
    what the numbers belong to (model, data, attacks): pools about different things refuse to merge.
    """

    @validated
    def __init__(self, images: int, about: dict[str, str] | None = None) -> None:
        self.about = {} if about is None else dict(about)
        self.examined = torch.zeros(check_count("images", images), dtype=torch.bool, device="cpu")
        self._best: AttackResult | None = None

    def __len__(self) -> int:
        return len(self.examined)

    def __repr__(self) -> str:
        return f"Pool: {int(self.examined.sum())} of {len(self)} images attacked" + (
            f", {self._best.threat}" if self._best else ""
        )

    @property
    def missing(self) -> Tensor:
        """Positions of the images that no result has covered yet."""
        return (~self.examined).nonzero().flatten()

    @property
    def result(self) -> AttackResult:
        """The minimum so far, as one result; inf at what is still missing."""
        if self._best is None:
            raise DataError("The pool is empty: update it with an attack's result first.")
        return self._best

    @validated
    def update(
        self,
        result: AttackResult | Tensor,
        images: Tensor | None = None,
        *,
        model: Model | None = None,
        x: Tensor | None = None,
        y: Tensor | None = None,
        name: str = "given",
        threat: ThreatName | Threat | None = None,
    ) -> None:
        """Take what is nearer in `result`, which is about the images at these positions (all of them by default).

        `result` is an attack's, or the adversarial images of anybody's attack: then `model`, `x` and `y` are what it
        attacked, `name` is what it is called, and `threat` the norm of an empty pool. Each is asked alone and measured
        here, and what does not hold is left out.
        """
        images = (
            torch.arange(len(self), device="cpu")
            if images is None
            else check_positions("images", images, len(self)).cpu()
        )
        if not isinstance(result, AttackResult):
            result = self._verified(result, model, x, y, name, threat)
        elif not (model is None and x is None and y is None and threat is None):
            raise ConfigError("model=, x=, y= and threat= belong to images; an attack's result has been verified.")
        if len(images) != len(result) or len(images.unique()) < len(images):
            raise DataError(
                f"A result of {len(result)} images cannot be entered at {len(images)} of {len(self)} places."
            )
        here = result.to("cpu")
        _check(here, torch.ones(len(here), dtype=torch.bool, device="cpu"), _FINITE)
        best = _nothing(len(self), here) if self._best is None else self._best
        if (best.threat, best.topk, best.quantize) != (here.threat, here.topk, here.quantize):
            raise ConfigError(
                f"The pool holds {best.threat} distances for top-{best.topk} (quantize={best.quantize}) and the result "
                f"{here.threat} ones for top-{here.topk} (quantize={here.quantize}): they are not comparable."
            )
        if best.adversarial.shape[1:] != here.adversarial.shape[1:]:
            raise DataError(
                f"The pool holds images of shape {tuple(best.adversarial.shape[1:])} and the result some of shape "
                f"{tuple(here.adversarial.shape[1:])}: they are of other data."
            )
        if best.adversarial.dtype != here.adversarial.dtype or best.distance.dtype != here.distance.dtype:
            # In the other's precision an image is another image, which nobody has asked about.
            raise DataError(
                f"The pool holds images in {best.adversarial.dtype} and the result some in {here.adversarial.dtype}, "
                "which rounding would change: use a pool for each."
            )
        better = here.distance < best.distance[images]
        at = images[better]
        best.distance[at], best.adversarial[at] = here.distance[better], here.adversarial[better]
        fresh = images[~self.examined[images]]
        best.adversarial[fresh] = here.adversarial[~self.examined[images]]
        best.forwards.index_add_(0, images, here.forwards)
        best.backwards.index_add_(0, images, here.backwards)
        if here.blind is not None:
            known = torch.zeros(len(self), dtype=torch.bool, device="cpu") if best.blind is None else best.blind.clone()
            known[images] = here.blind & (known[images] | ~self.examined[images])
            best = replace(best, blind=known)
        winner = list(best.winner)
        for position, row in zip(at.tolist(), better.nonzero().flatten().tolist(), strict=True):
            winner[position] = here.winner[row]
        self._best = replace(best, winner=tuple(winner), left_early=self._left_early(best, here, images))
        self.examined[images] = True

    def _left_early(self, best: AttackResult, here: AttackResult, images: Tensor) -> Tensor | None:
        """Which images were left early by all that could leave them."""
        if here.left_early is None:
            return best.left_early
        if best.left_early is None:
            return torch.zeros(len(self), dtype=torch.bool, device="cpu").index_put((images,), here.left_early)
        both = here.left_early & (best.left_early[images] | ~self.examined[images])
        return best.left_early.index_put((images,), both)

    def _verified(
        self,
        adversarial: Tensor,
        model: Model | None,
        x: Tensor | None,
        y: Tensor | None,
        name: str,
        threat: ThreatName | Threat | None,
    ) -> AttackResult:
        if model is None or x is None or y is None:
            given = shown(adversarial)
            raise ConfigError(f"result must be an AttackResult, or images with model=, x= and y=; got {given}.")
        known = threat if threat is not None else self._best.threat if self._best else None
        if known is None:
            raise ConfigError("The pool is empty, so pass threat=, the norm that distances are measured in.")
        topk = self._best.topk if self._best else 1
        if isinstance(adversarial, Tensor):
            check_batch(adversarial, "result")
        return verified(model, x, y, adversarial, threat=known, topk=topk, name=name)  # type: ignore[arg-type]

    def merge(self, *others: "Pool") -> "Pool":
        """The minimum of this pool and others about the same images; this one is changed and returned."""
        for other in others:
            check_kind("A pool to merge", other, (Pool,))
            if len(other) != len(self) or other.about != self.about:
                raise ConfigError(f"Pools about different things do not merge: {self.about} and {other.about}.")
            if other._best is not None:
                covered = other.examined.nonzero().flatten()
                self.update(other._best.select(covered), covered)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file; its name appears only when it is complete."""
        best = self.result
        names = sorted(set(best.winner))
        codes = torch.tensor([names.index(winner) for winner in best.winner], device="cpu")
        tensors = {name: getattr(best, name).contiguous() for name in _TENSORS}
        described = {"threat": best.threat, "topk": best.topk, "eps": best.eps, "quantize": best.quantize}
        tensors |= {name: getattr(best, name) for name in _NOTED if getattr(best, name) is not None}
        facts = {"winners": names, "about": self.about, **described, **self._range(best)}
        write(path, _KIND, {**tensors, "winner": codes, "examined": self.examined}, facts)

    def _range(self, best: AttackResult) -> dict[str, Any]:
        """The range of the pixels, which is that of the classifier's box, where it is not [0, 1]."""
        pixels = best.adversarial[self.examined]
        low, high = (min(0.0, float(pixels.amin())), max(1.0, float(pixels.amax()))) if pixels.numel() else (0.0, 1.0)
        return {} if (low, high) == (0.0, 1.0) else {"pixels": (low, high)}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Pool":
        """Read what `save` wrote."""
        tensors, facts = read(path, _KIND)
        with one_sentence(path, "delete it"):
            return cls._restored(tensors, join(_Described, facts, {}))

    @classmethod
    def _restored(cls, tensors: dict[str, Tensor], described: "_Described") -> "Pool":
        noted: dict[str, Any] = {name: tensors.pop(name, None) for name in _NOTED}
        if set(tensors) != {*_TENSORS, "winner", "examined"}:
            raise DataError(f"It must hold {', '.join(_TENSORS)}, winner and examined; got {', '.join(tensors)[:200]}.")
        n, codes = tensors["distance"].numel(), tensors["winner"]
        check_whole("winner", codes, n, 0, len(described.winners) - 1)
        check_bools("examined", tensors["examined"], n)
        for name, marks in noted.items():
            if marks is not None:
                check_bools(name, marks, n)
        fields: dict[str, Any] = {name: tensors[name] for name in _TENSORS} | noted
        fields |= {name: getattr(described, name) for name in ("threat", "topk", "eps", "quantize")}
        result = AttackResult(winner=tuple(described.winners[code] for code in codes.tolist()), **fields)
        _check(result, tensors["examined"], described.pixels)
        if bool(result.distance[~tensors["examined"]].isfinite().any()):
            raise DataError("It has distances of images that it says nobody attacked.")
        pool = cls(n, dict(described.about))
        pool.examined, pool._best = tensors["examined"], result
        return pool


@dataclass(frozen=True)
class _Described:
    """What a pool's file says about its tensors."""

    winners: tuple[str, ...]
    about: Mapping[str, str]
    threat: str
    topk: int
    eps: tuple[float, ...] | None
    quantize: int | None
    pixels: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        check_number("topk", self.topk, 1)
        check_number("quantize", 1 if self.quantize is None else self.quantize, 1, 16)
        for eps in self.eps or ():
            check_number("eps", eps, 0.0)


def _check(result: AttackResult, examined: Tensor, box: tuple[float, float]) -> None:
    """Refuse a result that no attack can find: a pool takes the smallest distance, so −5 would win."""
    n = len(result.winner)
    check_floats("distance", result.distance, n, 0.0, infinite=True)
    check_whole("forwards", result.forwards, n)
    check_whole("backwards", result.backwards, n)
    if result.adversarial.ndim < 2 or len(result.adversarial) != n:
        raise DataError(f"adversarial must be {n} images; got shape {tuple(result.adversarial.shape)}.")
    check_pixels("adversarial", result.adversarial[examined], int(examined.sum()), box=box)


def pooled(results: Iterable[AttackResult]) -> AttackResult:
    """The per-image minimum of results about the same images."""
    pool: Pool | None = None
    for result in check_several("results", results, "a list of attack results", DataError):
        check_kind("A result to pool", result, (AttackResult,))
        pool = pool or Pool(len(result))
        pool.update(result)
    if pool is None:
        raise DataError("There are no results to pool.")
    return pool.result


def _nothing(images: int, like: AttackResult) -> AttackResult:
    return AttackResult(
        distance=torch.full((images,), torch.inf, dtype=like.distance.dtype, device="cpu"),
        # Not a number, so that nobody takes the place of an image that was never attacked for a black image.
        adversarial=torch.full(
            (images, *like.adversarial.shape[1:]), torch.nan, dtype=like.adversarial.dtype, device="cpu"
        ),
        winner=("",) * images,
        forwards=torch.zeros(images, dtype=torch.int64, device="cpu"),
        backwards=torch.zeros(images, dtype=torch.int64, device="cpu"),
        threat=like.threat,
        topk=like.topk,
        eps=like.eps,
        quantize=like.quantize,
    )
