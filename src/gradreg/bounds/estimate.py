"""Estimating L and ω(ε): the paper's recipe, and two that hold better.

Random perturbations do not find the worst one, so the paper's ω is too small, and its bound too large on many images
(docs/bounds.md has figures). "ascent" searches instead of drawing. "local" searches around each evaluated image, as
`gradreg.bounds.local` says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradreg.bounds.calibration import Attacked, Calibration, check_enough
from gradreg.bounds.data import Data, batches, check, gather
from gradreg.bounds.estimation import Estimation, Fitting, Method, Progress, Search, grid
from gradreg.bounds.extremes import FitMethod
from gradreg.bounds.loss import CriterionName, Scores, loss_of
from gradreg.bounds.regularity import Regularity
from gradreg.bounds.solve import bounds
from gradreg.checks.calls import validated
from gradreg.checks.scalars import check_integer, check_number, check_switch
from gradreg.classifier import Classifier
from gradreg.errors import ConfigError
from gradreg.extras import need
from gradreg.fingerprints import image_keys
from gradreg.losses import misclassified
from gradreg.norms import Threat, ThreatName, checked
from gradreg.norms import threat as threat_named
from gradreg.penalty.passes import Criterion, Model

if TYPE_CHECKING:
    from gradreg.attacks.suite import SuiteName


@validated
def estimate_regularity(
    model: Model,
    data: Data,
    threat: ThreatName | Threat = "l2",
    *,
    method: Method = "ascent",
    eps: Iterable[float] | None = None,
    criterion: CriterionName | Criterion = "margin",
    threshold: float | None = None,
    scores: Scores = "probabilities",
    topk: int = 1,
    block_size: int = 32,
    p: float = 0.001,
    fit: FitMethod | None = None,
    samples: int = 10,
    steps: int | None = None,
    restarts: int = 1,
    rivals: int = 3,
    slack: float = 0.1,
    lipschitz_steps: int | None = None,
    clip: bool = True,
    limit: int | None = 1600,
    batch_size: int = 256,
    seed: int = 0,
    progress: Progress | None = None,
    alpha: float | None = None,
    calibration: Data | Calibration | None = None,
    attacks: "SuiteName | Sequence[str]" = "standard",
) -> Regularity:
    """L and ω on the grid `eps`, from the first `limit` images of `data`, which must not be those evaluated later.

    "paper": gradients at the images and `samples` random v in each ball; the maxima of blocks of `block_size` images
    are fitted by a GEV, and the value exceeded with probability `p` is taken. The fit is by maximum likelihood.
    "ascent": the same with the worst v found by projected ascent, `steps` (2) at each radius from each of `restarts`
    starts, and with the steepest gradient around each image. The fit is by L-moments.
    "local": a search alone, for each image by itself: `data` are then the very images to be bounded, all of them.
    Since each image counts here, and not the worst of many, it goes as an attack does: `steps` (10) towards each of the
    `rivals` nearest classes. It still is no proof: what it finds within (1 + slack)ε is taken for ω(ε).

    A fitted ω is cut at ε(L + max‖∇ℓ‖_*), which bounds it, before it is made monotone: one heavy-tailed fit at one
    radius would otherwise spoil all larger ones. `clip` keeps perturbed images in the pixel box, as attacks do.
    `progress` is called with the images done and their number.

    Prop. 2.2 holds for any loss ℓ, one value per image of (logits, labels), with a `threshold` ℓ₀ below which images
    are always classified correctly. Default: the margin at 0; "cross_entropy" has log 2.

    With `alpha`, `bounds(…).calibrated` holds against `attacks` for a share 1 − alpha of images like those of
    `calibration`, which are attacked here: images the model was not trained on and that are not bounded later. Without
    them "paper" and "ascent" estimate on one half of `data` and attack the other. A `calibration` of before is a
    regularity's.
    """
    if method in ("ascent", "paper"):
        need("scipy", f"Estimating by {method!r}")
    search = Search(method, samples, steps, restarts, rivals, slack, lipschitz_steps, seed)
    fitting = Fitting(block_size, p, fit or ("mle" if method == "paper" else "lmoments"), seed)
    if not isinstance(attacks, str) or attacks != "standard":
        from gradreg.attacks.suite import AttackOptions

        AttackOptions(attacks=attacks, threat=threat)
    limit = None if limit is None else check_integer("limit", limit, least=1)
    batch_size, clip = check_integer("batch_size", batch_size, least=1), check_switch("clip", clip)
    geometry, classifier, loss = threat_named(threat), Classifier.of(model), loss_of(criterion, threshold, scores, topk)
    x, y = gather(data, None if method == "local" else limit, classifier.device)
    radii = grid(eps, checked(geometry, x), x, method)
    estimation = Estimation(classifier, geometry, loss, radii, search, fitting, scores, clip, batch_size)
    if alpha is None and calibration is None:
        return estimation.run(x, y, progress)
    return _calibrated(estimation, (x, y), calibration, alpha, attacks, progress)


def _calibrated(
    estimation: Estimation,
    images: tuple[Tensor, Tensor],
    calibration: Data | Calibration | None,
    alpha: float | None,
    attacks: "SuiteName | Sequence[str]",
    progress: Progress | None,
) -> Regularity:
    """The estimate with a calibration: one that is known, or by attacking images that are not bounded."""
    local, device = estimation.search.method == "local", estimation.classifier.device
    x, y = images
    if isinstance(calibration, Calibration):
        if alpha is not None and alpha != calibration.alpha:
            raise ConfigError(f"alpha must be that of the calibration, {calibration.alpha:g}; got {alpha:g}.")
        known = estimation.run(x, y, progress)
        if calibration.about != estimation.about(known):
            raise ConfigError(
                "calibration must be of bounds that were estimated in the same way, of the same model; got one of "
                "others: pass images to calibrate on."
            )
        return replace(known, calibration=calibration)
    if alpha is None:
        raise ConfigError("calibration= needs alpha=, the share of images on which a bound may fail: 0.05 is usual.")
    alpha = check_number("alpha", alpha, above=0, below=1)
    if calibration is not None:
        held = gather(calibration, None, device)
    elif local:
        raise ConfigError(
            'alpha with method="local" needs calibration=, images to attack: not those that are bounded, and not those '
            "the model was trained on."
        )
    else:
        (x, y), held = _halves(x, y)
    return _calibrate(estimation, (x, y), held, alpha, attacks, progress)


def _calibrate(
    estimation: Estimation,
    images: tuple[Tensor, Tensor],
    held: tuple[Tensor, Tensor],
    alpha: float,
    attacks: "SuiteName | Sequence[str]",
    progress: Progress | None,
) -> Regularity:
    # Attacks are a package beside this one, and bounds without calibration do not need them.
    from gradreg.attacks import attack

    classifier, loss, batch_size = estimation.classifier, estimation.loss, estimation.batch_size
    _, x, y = check(classifier, *held)
    wrong = [misclassified(classifier.ask(x[rows]), y[rows], loss.topk) for rows in batches(len(x), batch_size)]
    check_enough(len(x) - int(torch.cat(wrong).sum()), alpha)
    local = estimation.search.method == "local"
    stages = _stages(progress, [len(images[0]), len(x) if local else 0, len(x)])
    known = estimation.run(*images, stages[0])
    around = estimation.run(x, y, stages[1]) if local else known
    bound = bounds(
        classifier, x, y, around, criterion=loss.criterion if not loss.trusted else None, batch_size=batch_size
    )
    distance = attack(
        classifier,
        x,
        y,
        threat=estimation.geometry,
        attacks=attacks,
        topk=loss.topk,
        seed=estimation.search.seed,
        batch_size=batch_size,
        progress=stages[2] or False,
    ).distance
    attacked = Attacked(bound.score, bound.omega, bound.lipschitz, distance, image_keys(x))
    return replace(known, calibration=attacked.calibration(alpha, attacks, estimation.about(known)))


def _halves(x: Tensor, y: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Two random halves of the images, the same in whatever order they come; no image is in both."""
    keys = image_keys(x)
    order = keys.argsort()
    first, second = order[::2], order[1::2]
    second = second[~torch.isin(keys[second], keys[first])]
    rows = [half.to(x.device) for half in (first, second)]
    return (x[rows[0]], y[rows[0]]), (x[rows[1]], y[rows[1]])


def _stages(progress: Progress | None, images: Sequence[int]) -> list[Progress | None]:
    """One callback per stage for all of them together, each with so many images."""
    if progress is None:
        return [None] * len(images)
    told, total = progress, sum(images)

    def stage(number: int) -> Progress:
        before, own = sum(images[:number]), images[number]
        return lambda done, of: told(before + own * done // max(of, 1), total)

    return [stage(number) for number in range(len(images))]
