"""The per-image minimum over attacks, runs, processes and files, and who found it."""

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from gradreg.attacks.result import AttackResult
from gradreg.checks.scalars import check_integer
from gradreg.checks.tensors import check_positions
from gradreg.errors import ConfigError, DataError
from gradreg.storage import read, write

_KIND = "pool of attack results"
_TENSORS = ("distance", "adversarial", "forwards", "backwards")


class Pool:
    """The best known adversarial image of each of `images` images; grows with `update` and `merge`.

    Positions are those of the whole data set, so pools of different shards of it merge. Costs add up. `about` says
    what the numbers belong to (model, data, attacks): pools about different things refuse to merge.
    """

    def __init__(self, images: int, about: dict[str, str] | None = None) -> None:
        self.about = dict(about or {})
        self.examined = torch.zeros(check_integer("images", images, least=1), dtype=torch.bool)
        self._best: AttackResult | None = None

    def __len__(self) -> int:
        return len(self.examined)

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

    def update(self, result: AttackResult, images: Tensor | None = None) -> None:
        """Take what is nearer in `result`, which is about the images at these positions (all of them by default)."""
        images = torch.arange(len(self)) if images is None else check_positions("images", images, len(self)).cpu()
        if len(images) != len(result) or len(images.unique()) < len(images):
            raise DataError(
                f"A result of {len(result)} images cannot be entered at {len(images)} of {len(self)} places."
            )
        if self._best is None:
            self._best = _nothing(len(self), result)
        best, here = self._best, result.to("cpu")
        if (best.threat, best.topk, best.quantize) != (here.threat, here.topk, here.quantize):
            raise ConfigError(
                f"The pool holds {best.threat} distances for top-{best.topk} (quantize={best.quantize}) and the result "
                f"{here.threat} ones for top-{here.topk} (quantize={here.quantize}): they are not comparable."
            )
        better = here.distance < best.distance[images]
        at = images[better]
        best.distance[at], best.adversarial[at] = here.distance[better], here.adversarial[better]
        fresh = images[~self.examined[images]]
        best.adversarial[fresh] = here.adversarial[~self.examined[images]]
        best.forwards.index_add_(0, images, here.forwards)
        best.backwards.index_add_(0, images, here.backwards)
        winner = list(best.winner)
        for position, row in zip(at.tolist(), better.nonzero().flatten().tolist(), strict=True):
            winner[position] = here.winner[row]
        self._best = replace(best, winner=tuple(winner))
        self.examined[images] = True

    def merge(self, *others: "Pool") -> "Pool":
        """The minimum of this pool and others about the same images; this one is changed and returned."""
        for other in others:
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
        codes = torch.tensor([names.index(winner) for winner in best.winner])
        tensors = {name: getattr(best, name).contiguous() for name in _TENSORS}
        described = {"threat": best.threat, "topk": best.topk, "eps": best.eps, "quantize": best.quantize}
        facts = {"winners": names, "about": self.about, **described}
        write(path, _KIND, {**tensors, "winner": codes, "examined": self.examined}, facts)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Pool":
        """Read what `save` wrote."""
        tensors, facts = read(path, _KIND)
        try:
            return cls._restored(tensors, facts)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise DataError(f"{path} is damaged ({type(error).__name__}: {error}); delete it.") from error

    @classmethod
    def _restored(cls, tensors: dict[str, Tensor], facts: dict[str, Any]) -> "Pool":
        pool = cls(len(tensors["distance"]), facts["about"])
        pool.examined = tensors.pop("examined")
        winner = tuple(facts["winners"][code] for code in tensors.pop("winner").tolist())
        eps = None if facts["eps"] is None else tuple(facts["eps"])
        described = {name: facts[name] for name in ("threat", "topk", "quantize")}
        fields: dict[str, Any] = {**described, **{name: tensors[name] for name in _TENSORS}}
        pool._best = AttackResult(winner=winner, eps=eps, **fields)
        return pool


def pooled(results: Iterable[AttackResult]) -> AttackResult:
    """The per-image minimum of results about the same images."""
    pool: Pool | None = None
    for result in results:
        pool = pool or Pool(len(result))
        pool.update(result)
    if pool is None:
        raise DataError("There are no results to pool.")
    return pool.result


def _nothing(images: int, like: AttackResult) -> AttackResult:
    return AttackResult(
        distance=torch.full((images,), torch.inf, dtype=like.distance.dtype),
        # Not a number, so that nobody takes the place of an image that was never attacked for a black image.
        adversarial=torch.full((images, *like.adversarial.shape[1:]), torch.nan, dtype=like.adversarial.dtype),
        winner=("",) * images,
        forwards=torch.zeros(images, dtype=torch.int64),
        backwards=torch.zeros(images, dtype=torch.int64),
        threat=like.threat,
        topk=like.topk,
        eps=like.eps,
        quantize=like.quantize,
    )
