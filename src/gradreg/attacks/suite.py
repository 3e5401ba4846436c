"""The suites: which attacks, in which order and for how long, and the call that runs them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from torch import Tensor

from gradreg.attacks.apgd import apgd
from gradreg.attacks.band import BANDS, Band
from gradreg.attacks.boundary import boundary
from gradreg.attacks.carlini_wagner import carlini_wagner
from gradreg.attacks.ddn import ddn
from gradreg.attacks.deepfool import deepfool
from gradreg.attacks.fmn import fmn
from gradreg.attacks.fresh import asked_again
from gradreg.attacks.logbarrier import logbarrier
from gradreg.attacks.options import SearchOptions
from gradreg.attacks.pgd import pgd
from gradreg.attacks.polish import polish
from gradreg.attacks.pool import Pool
from gradreg.attacks.reference import autoattack
from gradreg.attacks.result import AttackResult
from gradreg.attacks.run import Attack, Outcome, Step, run_plan
from gradreg.attacks.square import square
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_names
from gradreg.checks.tensors import check_batch, check_labels
from gradreg.classifier import Classifier
from gradreg.config.options import options_of, takes
from gradreg.errors import ConfigError, did_you_mean
from gradreg.fingerprints import images_key
from gradreg.ledger import check_same
from gradreg.locks import lock
from gradreg.norms import THREATS, Threat, probe
from gradreg.penalty.passes import Model
from gradreg.progress import Progress, reported

SuiteName = Literal["standard", "paper", "quick"]
SUITES: tuple[SuiteName, ...] = get_args(SuiteName)

ATTACKS: dict[str, Attack] = {
    found.name: found for found in (deepfool, ddn, fmn, pgd, apgd, carlini_wagner, boundary, logbarrier, square, polish)
}

# By name too, with eps=; in no suite, since the package that it needs is another one's.
REFERENCES: dict[str, Attack] = {autoattack.name: autoattack}


@dataclass(frozen=True, kw_only=True)
class AttackOptions(SearchOptions):
    """Options of `attack`."""

    attacks: SuiteName | Sequence[str] = "standard"
    """A suite (standard, paper or quick), or names of attacks."""
    thorough: bool = False
    """With `eps`, run all of `standard` also on images that are far outside of the radius, in l2 and l∞."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plan()

    def plan(self) -> list[Step]:
        """The attacks with their options, in order."""
        plan = _plan(self.attacks, self.norm, fixed=self.eps is not None)
        return plan if self.band is None else sparing(plan, self.band)

    @property
    def band(self) -> Band | None:
        """What decides that an image is left early; None: every image gets every attack.

        It was learned for `standard`, top-1 and the model's own precision, and holds for nothing else.
        """
        learned = self.attacks == "standard" and self.topk == 1 and self.precision == "model"
        return BANDS.get(self.norm.name) if learned and self.eps is not None and not self.thorough else None

    @property
    def left_out(self) -> tuple[str, ...]:
        """The attacks of the suite that do not support the threat."""
        return left_out(self.attacks, self.norm, fixed=self.eps is not None)


@takes(AttackOptions)
@validated
def attack(
    model: Model,
    x: Tensor,
    y: Tensor,
    options: AttackOptions | None = None,
    *,
    start: Tensor | None = None,
    progress: Progress | bool | None = None,
    resume: str | os.PathLike[str] | None = None,
    **keywords: Any,
) -> AttackResult:
    """The nearest adversarial image of each image over several attacks; with `eps`, whether there is one that near.

    `start` are adversarial images to begin with. `resume` is a file that keeps a pool of what is finished: an
    interrupted call continues from it. `progress` is True for a bar, on a terminal too, False for none, or a function
    that is called with how much is done and of how much; by default notebooks show a bar.
    """
    chosen = options_of(AttackOptions, options, keywords)
    x, y = check_batch(x), check_labels(y, len(x))
    plan = chosen.plan()
    if start is None and not any(step.attack.claims for step in plan):
        raise ConfigError(
            f"attacks must include one that finds adversarial images, or start= be given; got {chosen.attacks}."
        )
    if resume is None:
        with reported("attack", progress) as report:
            outcome = run_plan(model, x, y, plan, chosen, start=start, progress=report)
        return _told(model, x, y, outcome, chosen)

    def part(rows: Tensor) -> AttackResult:
        return run_plan(model, x[rows], y[rows], plan, chosen, start=None if start is None else start[rows]).result

    norm = chosen.norm
    about = {
        "weights": Classifier.of(model).fingerprint(x),
        "images": images_key(x, y) + ("" if start is None else images_key(start)),
        "attacks": repr((plan, norm.name)),
        "settings": repr((chosen.radii, chosen.topk, chosen.seed, chosen.budget, chosen.quantize)),
    }
    if chosen.precision != "model":
        about["precision"] = chosen.precision
    if chosen.band is not None:
        about["band"] = f"{chosen.band.factor:g}"
    if norm.name not in THREATS:
        about["norm"] = " ".join(f"{value:.4g}" for value in probe(norm, x))
    path = Path(resume)
    with lock(path.parent, path.name), reported("attack", progress) as report:
        found = _resumed(path, about, x, part, chosen.batch_size, report)
    return _told(model, x, y, Outcome(found.to(x.device), found.doubt), chosen)


def _told(model: Model, x: Tensor, y: Tensor, outcome: Outcome, chosen: AttackOptions) -> AttackResult:
    """With what was left out, who was left early and what holds under fresh draws; after a warning about gradients."""
    outcome.warn()
    return asked_again(model, x, y, replace(outcome.result, left_out=chosen.left_out, band=chosen.band))


def _resumed(
    path: Path,
    about: dict[str, str],
    x: Tensor,
    part: Callable[[Tensor], AttackResult],
    batch_size: int,
    progress: Progress,
) -> AttackResult:
    """Attack the images that the pool in that file does not have yet, and save it after every batch."""
    pool = Pool.load(path) if path.exists() else Pool(len(x), about)
    check_same(path, pool.about, about)
    # Of nothing, `split` would make one empty part.
    for rows in pool.missing.split(batch_size) if len(pool.missing) else ():
        pool.update(part(rows.to(x.device)), rows)
        pool.save(path)
        progress(int(pool.examined.sum()), len(pool))
    return pool.result


def choices() -> str:
    """What `attacks` can be, in words: for help texts and errors."""
    return f"a suite ({', '.join(SUITES)}) or a list of attacks ({', '.join(ATTACKS)})"


def _plan(attacks: SuiteName | Sequence[str], threat: Threat, fixed: bool) -> list[Step]:
    if isinstance(attacks, str):
        suites = FIXED if fixed else MINIMAL
        if attacks not in suites:
            raise ConfigError(f"attacks must be {choices()}; got {attacks!r}{did_you_mean(attacks, suites)}.")
        return [Step(found, options) for found, options in suites[attacks] if found.supports(threat)]
    attacks = check_names("attacks", attacks)
    known = ATTACKS | REFERENCES
    unknown = [name for name in attacks if name not in known]
    if unknown or not attacks:
        hint = did_you_mean(unknown[0], known) if unknown else ""
        raise ConfigError(f"attacks must be {choices()}; got {', '.join(unknown) or '[]'}{hint}.")
    return [Step(known[name]) for name in attacks] + ([] if fixed or "polish" in attacks else [Step(polish)])


def sparing(plan: Sequence[Step], band: Band) -> list[Step]:
    """The same attacks, those that measure distances first; images outside of the band are left after them.

    In the band LogBarrier comes next: from an adversarial image just outside of the radius it is the cheapest way in.
    """
    *measured, last = (step for step in plan if step.attack is fmn)
    inwards = [step for step in plan if step.attack is logbarrier]
    others = [step for step in plan if step.attack not in (fmn, logbarrier)]
    return [*measured, replace(last, beyond=band.factor), *inwards, *others]


def left_out(attacks: str | Sequence[str], threat: Threat, fixed: bool) -> tuple[str, ...]:
    """The attacks of a suite that do not support the threat."""
    suite = (FIXED if fixed else MINIMAL)[attacks] if isinstance(attacks, str) else []
    return tuple(dict.fromkeys(found.name for found, _ in suite if not found.supports(threat)))


_Suite = list[tuple[Attack, dict[str, Any]]]

MINIMAL: dict[str, _Suite] = {
    "quick": [(deepfool, {"steps": 3}), (fmn, {"steps": 22, "first": 10.0}), (polish, {"steps": 7})],
    "paper": [(pgd, {}), (carlini_wagner, {}), (boundary, {}), (logbarrier, {}), (polish, {})],
    "standard": [
        (fmn, {"steps": 100}),
        (fmn, {"steps": 50, "target": 1}),
        (fmn, {"steps": 50, "target": 2}),
        (fmn, {"steps": 50, "target": 3}),
        (apgd, {"steps": 20, "rounds": 4, "losses": ("ce", "dlr", "t1")}),
        (square, {"steps": 60}),
        (boundary, {"steps": 60}),
        (logbarrier, {"outer": 4, "inner": 8, "alpha": 0.02, "beta": 0.5}),
        (deepfool, {"steps": 5, "overshoot": 0.005, "warm": True}),
        (polish, {}),
    ],
}

FIXED: dict[str, _Suite] = {
    "quick": [(fmn, {"steps": 16, "first": 10.0}), (apgd, {"steps": 10, "losses": ("ce",)})],
    "paper": [(pgd, {}), (carlini_wagner, {}), (boundary, {}), (logbarrier, {})],
    "standard": [
        (fmn, {"steps": 60}),
        (apgd, {"steps": 50, "losses": ("ce", "dlr")}),
        (fmn, {"steps": 40, "target": 1}),
        (fmn, {"steps": 40, "target": 2}),
        (fmn, {"steps": 40, "target": 3}),
        (apgd, {"steps": 50, "losses": ("t1", "t2", "t3")}),
        (square, {"steps": 80}),
        (boundary, {"steps": 200}),
        # From random starts: images that remain robust to all of the above often have a single basin that leads out.
        (pgd, {"steps": 100, "rounds": 4}),
        (logbarrier, {"outer": 4, "inner": 8, "alpha": 0.02, "beta": 0.5}),
    ],
}
