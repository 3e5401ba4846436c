"""From a model and images to a verified result: what all attacks and suites share around the search."""

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gradreg.attacks.fresh import asked_again
from gradreg.attacks.options import SHARED, SearchOptions
from gradreg.attacks.quantize import snap
from gradreg.attacks.result import AttackResult, concatenate, gradient_doubt
from gradreg.attacks.search import Finished, Search
from gradreg.attacks.verify import verify
from gradreg.checks.calls import validated
from gradreg.checks.fields import check_options
from gradreg.checks.tensors import check_batch, check_device, check_labels
from gradreg.classifier import Checked, Classifier
from gradreg.config.options import takes
from gradreg.errors import ConfigError, DataError, PrecisionError, warn
from gradreg.fingerprints import image_keys
from gradreg.losses import margin, misclassified
from gradreg.norms import Threat, ThreatName, checked
from gradreg.penalty.passes import Model
from gradreg.precision import at_least_single
from gradreg.progress import Progress, reported
from gradreg.queries import Queries

_LOW = {"bf16": torch.bfloat16}
# Rounding in low precision may be this fraction of an image's margin, for half of the images.
_LOST = 0.1


class Attack:
    """A search function as an attack: call it with a model and images, or name it in a suite."""

    def __init__(
        self, run: Callable[..., None], only: tuple[ThreatName, ...], because: str, claims: bool, fixed: bool
    ) -> None:
        self.name, self.search, self.claims, self.fixed = run.__name__, run, claims, fixed
        self.only, self.because = only, because
        self.__doc__, self.__module__, self.__qualname__ = run.__doc__, run.__module__, run.__qualname__
        self.options = tuple(inspect.signature(run).parameters)[1:]

    @takes(SearchOptions)
    @validated
    def __call__(
        self,
        model: Model,
        x: Tensor,
        y: Tensor,
        *,
        start: Tensor | None = None,
        progress: "Progress | bool | None" = None,
        **keywords: Any,
    ) -> AttackResult:
        """Attack the images; `start` are adversarial images to begin with, `progress` is as in `attack`.

        Keywords are those of `SearchOptions` and the attack's own.
        """
        shared = {name: keywords.pop(name) for name in SHARED if name in keywords}
        options = SearchOptions(**shared)
        with reported(self.name, progress) as report:
            found = run_plan(model, x, y, [Step(self, keywords)], options, start=start, progress=report)
        found.warn()
        return asked_again(model, x, y, found.result)

    def supports(self, threat: Threat) -> bool:
        """Whether it works in that norm."""
        return not self.only or threat.name in self.only

    def check(self, threat: Threat, fixed: bool = True) -> None:
        """Refuse a norm that it does not support, and a search without radii if it needs them."""
        if self.fixed and not fixed:
            raise ConfigError(f"{self.name} needs radii to attack at: pass eps=, such as 8/255.")
        if not self.supports(threat):
            raise ConfigError(
                f"{self.name} supports the threats {', '.join(self.only)} only, since {self.because}; got "
                f"{threat.name}."
            )

    def __reduce__(self) -> str:
        """Pickled by name, like the function it was made from, whose place in its module it took."""
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<attack {self.name}({', '.join(self.options)})>"


def attack_on(
    *only: ThreatName, because: str = "", claims: bool = True, fixed: bool = False
) -> Callable[[Callable[..., None]], Attack]:
    """Make a search function an attack, in any norm or in these `only`, `because` of something.

    Without `claims` the attack improved on stays the winner; `fixed` attacks know nothing but radii.
    """
    return lambda run: Attack(run, only, because, claims, fixed)


@dataclass(frozen=True)
class Step:
    """An attack with its options, as a suite runs it."""

    attack: Attack
    options: dict[str, Any] = field(default_factory=dict)
    beyond: float = field(default=math.inf, repr=False)
    """After it, an image is left if it and the steps before found one farther than so many radii, and none nearer."""

    def checked(self, threat: Threat, fixed: bool) -> "Step":
        """With its options as Python's own numbers; refuse an option or a threat that the attack does not support."""
        unknown = sorted(set(self.options) - set(self.attack.options))
        if unknown:
            known = ", ".join(self.attack.options)
            raise ConfigError(f"{self.attack.name}'s options must be among {known}; got {', '.join(unknown)}.")
        self.attack.check(threat, fixed)
        return replace(self, options=check_options(self.attack.search, self.options))


@dataclass(frozen=True)
class Outcome:
    """The result of a plan, and its `doubt`, which was told by the looks that the plan took anyway."""

    result: AttackResult
    doubt: str

    def warn(self) -> None:
        """Say that attacks had no gradient to follow, if that is so."""
        if self.doubt:
            warn(self.doubt)


def run_plan(
    model: Model,
    x: Tensor,
    y: Tensor,
    plan: Sequence[Step],
    options: SearchOptions,
    *,
    start: Tensor | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run the steps of a plan on batches of images and verify what they found."""
    norm, classifier, radii = options.norm, Classifier.of(model), options.radii
    plan = [step.checked(norm, radii is not None) for step in plan]
    x, y = check_batch(x), check_labels(y, len(x))
    checked(norm, x)
    low = _LOW.get(options.precision)
    if low is not None:
        classifier.check_single()
    if start is not None and check_batch(start, "start").shape != x.shape:
        raise DataError(f"start must have the shape of x, {tuple(x.shape)}; got {tuple(start.shape)}.")
    if start is not None:
        check_device("start", start, x)
        classifier.check_pixels(start, "start")
    batches = list(zip(x.split(options.batch_size), y.split(options.batch_size), strict=True))
    starts = [None] * len(batches) if start is None else list(start.split(options.batch_size))
    results, told = [], []
    for number, ((images, labels), begin) in enumerate(zip(batches, starts, strict=True)):
        images = images.detach().to(at_least_single(images.dtype))
        begin = None if begin is None else begin.detach().to(images.dtype)
        with classifier.counted(len(images), images.device) as queries:
            search = _prepare(classifier, images, labels, queries, options)
            report = _reporter(progress, number, len(batches))
            left_early = _pursue(search, plan, radii, begin, report, low)
            if options.quantize is not None:
                snap(search, options.quantize, None if options.budget is None else options.budget - 1)
            found = verify(search, push=options.quantize is None)
        told.append(found)
        names = ["", *(step.attack.name for step in plan), "start"]
        pairs = zip(found.winner.tolist(), found.distance.tolist(), strict=True)
        winner = tuple("clean" if far == 0 else names[i + 1] for i, far in pairs)
        results.append(
            AttackResult(
                search.distance,
                search.adversarial,
                winner,
                queries.forwards,
                queries.backwards,
                norm.name,
                options.topk,
                radii,
                options.quantize,
                blind=search.guidance.blind,
                left_early=left_early if any(step.beyond < math.inf for step in plan) else None,
            )
        )
    blind, distance = (torch.cat([getattr(found, name) for found in told]) for name in ("blind", "distance"))
    return Outcome(concatenate(results), gradient_doubt(blind, distance))


def _prepare(classifier: Classifier, x: Tensor, y: Tensor, queries: Queries, options: SearchOptions) -> Search:
    """Check the model and the images, and that the model returns the same logits twice, with others in the batch."""
    # Every second image, so that no part holds all neighbours of an image, of which a model may make groups.
    places = torch.arange(len(x), device=x.device)
    halves = [half for half in (places[::2], places[1::2]) if len(half)]
    back = torch.cat(halves).argsort()

    def again(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([classifier(x[half], half) for half in halves])[back]

    low = _LOW.get(options.precision)
    known = classifier.check_at_once(x, y, again, low)
    _refuse_lost_margins(known, options.topk)
    queries.forwards.add_(1 if low is None else 2)
    topk = options.topk
    return Search(
        classifier,
        x,
        y,
        options.norm,
        known.logits,
        topk=topk,
        seed=options.seed,
        queries=queries,
        budget=options.search_budget,
        keys=image_keys(known.pixels),
        right=int((~misclassified(known.said, known.labels, topk)).sum()),
        evaluations=1 + len(halves) + (low is not None),
    )


def _refuse_lost_margins(known: Checked, topk: int) -> None:
    """Where rounding in low precision is as large as what an attack has to overcome, a model looks robust by it."""
    if known.low is None:
        return
    exact, rounded = (margin(logits, known.labels, topk) for logits in (known.said, known.low))
    right = exact < 0
    lost = ((rounded - exact).abs() / exact.abs().clamp(min=torch.finfo(exact.dtype).tiny))[right]
    share = float(lost.median()) if len(lost) else 0.0
    if not share <= _LOST:
        raise PrecisionError(
            f"Rounding in bfloat16 makes up {share:.0%} of the median margin of this model's logits, which are as "
            f"large as {float(known.said.abs().amax()):.2g}; use precision='model'."
        )


def _pursue(
    search: Search,
    plan: Sequence[Step],
    radii: tuple[float, ...] | None,
    start: Tensor | None,
    report: Progress,
    low: torch.dtype | None,
) -> Tensor:
    """Run all steps; with radii, again for the next smaller one on the images that were broken at the larger.

    Returns which images were left before the last step, since they are far outside of a radius.
    """
    if start is not None:
        _attempt(search, len(plan), True, lambda: search.margin(start))
    pending = torch.ones_like(search.distance, dtype=torch.bool)
    left_early = torch.zeros_like(pending)
    rounds = len(radii or (None,))
    for past in range(rounds):
        if radii is not None:
            pending &= _aim(search, radii, pending)
        for number, step in enumerate(plan):
            # What only shortens a distance works within the error of low precision.
            kept = low if step.attack.claims else None
            _attempt(search, number, step.attack.claims, partial(step.attack.search, search, **step.options), kept)
            if radii is not None and step.beyond < math.inf:
                # Measured by these steps: what `start` or another attack found says little of how near the nearest is.
                measured = (search.winner >= 0) & (search.winner <= number)
                far = search.live() & measured & (search.distance > step.beyond * search.goal)
                search.leave(far)
                left_early, pending = left_early | far, pending & ~far
            report(past * len(plan) + number + 1, rounds * len(plan))
        if low is not None:
            _mend(search, plan)
        if radii is not None:
            pending &= search.distance <= search.goal
    return left_early


def _mend(search: Search, plan: Sequence[Step]) -> None:
    """Search again as the model computes for images that low precision has led astray."""
    astray = search.astray()
    if astray is None:
        return

    def run(step: Step) -> None:
        search.retire(~astray)
        step.attack.search(search, **step.options)

    for number, step in enumerate(plan):
        _attempt(search, number, step.attack.claims, partial(run, step))


def _aim(search: Search, radii: tuple[float, ...], pending: Tensor) -> Tensor:
    """Aim each pending image at the largest radius that is not broken yet; skip the others."""
    smaller = torch.tensor(radii, device=search.x.device, dtype=search.distance.dtype)
    # No ball needs to be larger than the box, and arithmetic with a radius of 1e38 overflows.
    smaller = smaller.minimum(search.widest).expand(len(search.x), -1)
    target = smaller.where(smaller < search.distance[:, None], -1).amax(1)
    pending = pending & (target >= 0)
    search.aim(target.where(pending, torch.inf))
    return pending


def _attempt(
    search: Search, number: int, claims: bool, run: Callable[[], object], low: torch.dtype | None = None
) -> None:
    with suppress(Finished):
        search.begin(number, claims, low)
        run()
    search.settle()


def _reporter(progress: Progress | None, batch: int, batches: int) -> Progress:
    if progress is None:
        return lambda done, total: None
    return lambda done, total: progress(batch * total + done, batches * total)
