"""Randomized smoothing: a radius per image within which the smoothed classifier's prediction cannot change.

The smoothed classifier predicts the class that the base classifier gives most often to x + N(0, σ²I). If it gives that
class with probability p > ½, the prediction holds within σΦ⁻¹(p) in l2 (Cohen, Rosenfeld & Kolter 2019).
"""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gradreg.checks.calls import validated
from gradreg.checks.fields import conform
from gradreg.checks.scalars import check_integer
from gradreg.checks.tensors import check_batch, check_device, check_labels
from gradreg.classifier import Classifier
from gradreg.codec import join
from gradreg.columns import check_whole
from gradreg.config.options import options_of, takes
from gradreg.errors import ConfigError, DataError
from gradreg.fingerprints import image_keys, joint_key
from gradreg.ledger import check_same
from gradreg.locks import lock
from gradreg.penalty.passes import Model
from gradreg.precision import at_least_single
from gradreg.progress import Progress, reported
from gradreg.randomness import stream
from gradreg.reading import one_sentence
from gradreg.smoothing import rules
from gradreg.smoothing.certificates import Certificates, Settings
from gradreg.smoothing.options import CertifyOptions
from gradreg.smoothing.sampling import Request, Sampler, Stage
from gradreg.storage import read, write

Ints = NDArray[np.int64]

_SAVE_EVERY = 30.0  # seconds
_STATE = "certification state"
_COUNTS = ("guess", "stages", "hits", "best", "done")


@takes(CertifyOptions)
@validated
def certify(
    model: Model,
    x: Tensor,
    options: CertifyOptions | None = None,
    *,
    labels: Tensor | None = None,
    shard: tuple[int, int] = (0, 1),
    state: str | Path | None = None,
    progress: Progress | bool | None = None,
    **keywords: Any,
) -> Certificates:
    """Predictions of the smoothed classifier and their l2 radii, each wrong with probability `alpha` at most.

    n0 samples pick the class; up to n fresh ones test it. `method="cohen"` always takes n and gives the radius of a
    Clopper-Pearson limit. `method="sequential"`, the default, looks at the counts up to 24 times and stops once the
    answer is known, with the same guarantee. It tests a grid of radii at once: `radii`, or, with None, multiples of
    σ/16; then an image is finished once no more than σ/4 above what it holds can be hoped for. Cohen's radius is
    continuous with None, and rounded down to `radii` otherwise; `randomized=True` makes it larger, most of all where
    nearly all samples agree, by a limit that fails with probability alpha exactly.

    `topk=k` certifies that the class stays among the k that the base classifier gives most often. `labels` names the
    classes to test instead of picking them: this is what top-k accuracy needs, and no certificate that a deployed
    classifier could give, since it knows the answer.

    `state` is a file in which work is kept, to go on with after an interruption. `shard=(rank, processes)` does every
    `processes`-th image; `merge` puts shards together. Results depend on none of these, nor on `batch_size`.
    `progress` is True for a bar, on a terminal too, False for none, or a function that is called with the images done
    and their number; by default notebooks show a bar.
    """
    chosen = options_of(CertifyOptions, options, keywords)
    settings, topk, batch_size = chosen.settings(labels is not None), chosen.topk, chosen.batch_size
    shard = conform("shard", shard, tuple[int, int])
    if not 0 <= shard[0] < shard[1]:
        raise ConfigError(f"shard must be (rank, processes) with 0 ≤ rank < processes; got {shard}.")
    classifier, x = Classifier.of(model), check_batch(x).detach()
    # Noise would be rounded to the few values of half precision, and a certificate is about all of it.
    x = x.to(at_least_single(x.dtype))
    if labels is not None:
        labels = check_labels(labels, len(x), "labels")
        check_device("labels", labels, x)
    classes = _check(classifier, x, labels, topk, batch_size)
    grid = None if settings.radii is None else np.array(settings.radii)
    rule: rules.Rule = getattr(rules, settings.method)(settings.sigma, settings.alpha, settings.n, topk, grid)
    if isinstance(rule, rules.Cohen):
        rule = replace(rule, randomized=settings.randomized)
    keys = image_keys(x).tolist()
    mine = range(shard[0], len(x), shard[1])
    tally = _Tally.new(settings, keys, mine, labels)
    # A batch never holds more than there is to draw, whatever its size.
    rows = min(batch_size, max(1, len(mine)) * (settings.n0 + settings.n))
    sampler = Sampler(classifier, x, keys, classes, settings.sigma, settings.seed, rows)
    path = None if state is None else Path(state)
    about = {
        "weights": "" if path is None else classifier.fingerprint(x),
        "images": tally.images,
        "labels": "" if labels is None else joint_key(labels.tolist()),
        "settings": repr(settings),
        "shard": repr(shard),
    }
    with nullcontext() if path is None else lock(path.parent, path.name), reported("certify", progress) as report:
        if path is not None and path.exists():
            tally.resume(path, about, rule.sizes, classes)
        saved = monotonic()
        try:
            for done, _ in enumerate(sampler.run(tally.first(rule), lambda stage: tally.decide(stage, rule)), 1):
                report(tally.done_before + done, len(mine))
                if path is not None and monotonic() - saved > _SAVE_EVERY:
                    tally.save(path, about)
                    saved = monotonic()
        finally:
            if path is not None:
                tally.save(path, about)
    uniform = np.array([stream("randomised limit", settings.seed, keys[image]).random() for image in mine])
    return tally.certificates(rule, uniform, x.device)


@dataclass
class _Tally:
    """How far each image of the shard has come: the class under test, stages finished, hits, the radius held so far."""

    settings: Settings
    images: str
    index: Ints
    guess: Ints
    stages: Ints
    hits: Ints
    best: Ints
    done: Ints
    done_before: int = field(default=0, init=False)

    @classmethod
    def new(cls, settings: Settings, keys: list[int], mine: range, labels: Tensor | None) -> "_Tally":
        index = np.array(mine, dtype=np.int64)
        unknown = np.full(len(index), -1)
        guess = unknown.copy() if labels is None else labels.cpu().numpy()[index]
        zeros = (np.zeros(len(index), dtype=np.int64) for _ in range(3))
        stages, hits, done = zeros
        return cls(settings, joint_key(keys), index, guess, stages, hits, unknown, done)

    def first(self, rule: rules.Rule) -> Iterator[Request]:
        """What is next for each image that is not finished."""
        for row in np.flatnonzero(self.done == 0):
            yield self._next(int(row), rule)

    def decide(self, stage: Stage, rule: rules.Rule) -> Request | None:
        """Enter a finished stage; what is next for its image."""
        row = int(np.searchsorted(self.index, stage.image))
        if stage.number == 0:
            self.guess[row] = int(stage.counts.argmax())
            return self._next(row, rule)
        self.hits[row] += stage.counts[self.guess[row]]
        self.stages[row] = stage.number
        self.best[row], finished = rule.look(stage.number - 1, int(self.hits[row]), int(self.best[row]))
        self.done[row] = finished
        return None if finished else self._next(row, rule)

    def _next(self, row: int, rule: rules.Rule) -> Request:
        image = int(self.index[row])
        if self.guess[row] < 0:
            return image, 0, self.settings.n0
        number = int(self.stages[row])
        return image, number + 1, rule.sizes[number] - (rule.sizes[number - 1] if number else 0)

    def certificates(self, rule: rules.Rule, uniform: NDArray[np.float64], device: torch.device) -> Certificates:
        radius = rule.radius(self.hits.astype(float), self.best.astype(float), uniform)
        tested = np.array(rule.sizes)[self.stages - 1]
        drawn = tested + (0 if self.settings.given_labels else self.settings.n0)
        return Certificates(
            prediction=torch.from_numpy(np.where(radius >= 0, self.guess, -1)).to(device),
            radius=torch.from_numpy(np.maximum(radius, 0)).to(device),
            samples=torch.from_numpy(drawn).to(device),
            index=torch.from_numpy(self.index).to(device),
            settings=self.settings,
            images=self.images,
            frequency=torch.from_numpy(self.hits / tested).to(device),
        )

    def save(self, path: Path, about: Mapping[str, str]) -> None:
        write(path, _STATE, {name: torch.from_numpy(getattr(self, name)) for name in _COUNTS}, {"about": about})

    def resume(self, path: Path, about: Mapping[str, str], sizes: tuple[int, ...], classes: int) -> None:
        tensors, facts = read(path, _STATE)
        with one_sentence(path, "delete it to start over"):
            before = join(Mapping[str, str], facts.get("about"), {}, "about")
        check_same(path, before, about)
        with one_sentence(path, "delete it to start over"):
            _check_counts(tensors, len(self.index), sizes, classes)
        for name in _COUNTS:
            setattr(self, name, tensors[name].numpy())
        self.done_before = int(np.count_nonzero(self.done))


def _check_counts(tensors: Mapping[str, Tensor], n: int, sizes: tuple[int, ...], classes: int) -> None:
    """Refuse counts that this certification cannot have come to."""
    if set(tensors) != set(_COUNTS):
        raise DataError(f"It must hold {', '.join(_COUNTS)}; got {', '.join(tensors)[:200]}.")
    tops = {"guess": classes - 1, "stages": len(sizes), "hits": sizes[-1], "best": None, "done": 1}
    for name in _COUNTS:
        check_whole(name, tensors[name], n, -1 if name in ("guess", "best") else 0, tops[name])
    drawn = torch.tensor((0, *sizes), device="cpu")[tensors["stages"]]
    if bool((tensors["hits"] > drawn).any()):
        raise DataError("hits must be at most the samples drawn.")
    if bool(((tensors["done"] == 1) & ((tensors["stages"] == 0) | (tensors["guess"] < 0))).any()):
        raise DataError("An image cannot be done before it was sampled.")


def _check(classifier: Classifier, x: Tensor, labels: Tensor | None, topk: int, batch_size: int) -> int:
    """Refuse bad images and labels; returns the number of classes."""
    y = torch.zeros(len(x), dtype=torch.int64, device=x.device) if labels is None else labels
    classes = 0
    for start in range(0, max(len(x), 1), batch_size):
        classes = classifier.check(x[start : start + batch_size], y[start : start + batch_size]).shape[1]
    check_integer("topk", topk, least=1, most=classes - 1, usual=f"the model has {classes} classes")
    return classes
