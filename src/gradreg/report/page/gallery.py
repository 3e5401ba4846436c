"""A few images beside the nearest adversarial ones found for them, what was changed, and the margin on the way."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import interpolate

from gradreg.display.numbers import distance_name, percent
from gradreg.evaluation.gallery import Gallery
from gradreg.evaluation.record import Evaluation, ThreatRecord
from gradreg.report.comparison import Comparison
from gradreg.report.page.png import data_uri

# Of one model and threat, and bytes of all pictures together: with many models of large images, fewer are shown, then
# smaller ones.
_FEWEST, _MOST, _BUDGET = 6, 24, 2_000_000


@dataclass(frozen=True)
class _Way:
    """The margin from an image through its adversarial one, as a path in a box of 150 by 40, and in words."""

    path: str
    words: str


@dataclass(frozen=True)
class _Exhibit:
    """One image in three pictures, each a data URI."""

    clean: str
    adversarial: str
    difference: str
    magnified: int
    label: str
    prediction: str
    distance: str
    bounds: tuple[tuple[str, str], ...]
    """Bounds, certificates, and the answers of fresh draws by name."""
    index: int
    row: int
    way: _Way | None


@dataclass(frozen=True)
class _Wall:
    """The exhibits of one model and threat."""

    model: str
    threat: str
    norm: str
    """The threat by its name."""
    number: int
    """Of the model."""
    norm_number: int
    exhibits: tuple[_Exhibit, ...]


def walls(comparison: Comparison) -> tuple[list[_Wall], int]:
    """All pictures that were kept, and the side in pixels to which larger ones were reduced (0: none was).

    Of vectors and volumes, which are no pictures, there are none.
    """
    kept = [
        (each, found, found.gallery, shown)
        for each in comparison.evaluations
        for found in each.threats.values()
        if found.gallery is not None and found.gallery.clean.ndim == 4 and (shown := _broken(found, found.gallery))
    ]
    side = max((max(gallery.clean.shape[2:]) for *_, gallery, _ in kept), default=1)
    most = max(_FEWEST, min(_MOST, _BUDGET * 3 // 4 // (9 * side**2 * max(1, len(kept)))))
    kept = [(each, found, gallery, shown[:most]) for each, found, gallery, shown in kept]
    largest = _largest_side(sum(len(shown) for *_, shown in kept))
    return [_wall(comparison, *each, largest) for each in kept], largest if side > largest else 0


def _largest_side(exhibits: int) -> int:
    """So that three pictures of each, uncompressed and as base64, stay within the budget."""
    return max(32, math.isqrt(_BUDGET * 3 // 4 // (9 * max(1, exhibits))))


def _magnification(difference: Tensor) -> int:
    """The largest of 1, 2, 5, 10, … that keeps grey plus the magnified difference inside the pixel box."""
    highest = float(difference.abs().max())
    if highest == 0:
        return 1
    room = max(1.0, 0.5 / highest)
    power = int(10 ** math.floor(math.log10(room)))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= room)


def _broken(record: ThreatRecord, gallery: Gallery) -> list[int]:
    """Which of the images kept have an adversarial one to show."""
    distance = record.attacked.distance
    return [i for i, row in enumerate(gallery.rows) if 0 < float(distance[row]) < math.inf]


def _wall(
    comparison: Comparison,
    evaluation: Evaluation,
    record: ThreatRecord,
    gallery: Gallery,
    shown: Sequence[int],
    side: int,
) -> _Wall:
    in_255 = comparison.in_255(record.threat)
    exhibits = tuple(_exhibit(evaluation, record, gallery, i, side, in_255) for i in shown)
    name, threat = evaluation.subject.name, record.threat
    numbers = comparison.names.index(name), comparison.threats.index(threat)
    return _Wall(name, record.symbol, threat, *numbers, exhibits)


def _exhibit(
    evaluation: Evaluation, record: ThreatRecord, gallery: Gallery, i: int, side: int, in_255: bool
) -> _Exhibit:
    row, clean, adversarial = gallery.rows[i], gallery.clean[i].float(), gallery.adversarial[i].float()
    difference = adversarial - clean
    factor = _magnification(difference)
    return _Exhibit(
        clean=data_uri(_reduced(clean, side, "area")),
        adversarial=data_uri(_reduced(adversarial, side, "area")),
        # Averaging neighbours would hide what was changed.
        difference=data_uri(_reduced(0.5 + factor * difference, side, "nearest")),
        magnified=factor,
        label=_class_name(evaluation, int(evaluation.label[row])),
        prediction=_class_name(evaluation, gallery.prediction[i]),
        distance=distance_name(record.threat, float(record.attacked.distance[row]), in_255),
        bounds=tuple(_bounds(evaluation, record, row, in_255)),
        index=int(evaluation.index[row]),
        row=row,
        way=_way(gallery, i),
    )


def _bounds(evaluation: Evaluation, record: ThreatRecord, row: int, in_255: bool) -> Iterator[tuple[str, str]]:
    """Bounds of one image under the threat, its certificates, which are in l2, and what fresh draws make of it."""
    bounded = record.bounded
    if bounded is not None:
        found = {"L-bound": bounded.lipschitz_bound, "ω-bound": bounded.omega_bound}
        if bounded.calibrated is not None:
            found["calibrated bound"] = bounded.calibrated.bound
        for name, bound in found.items():
            if math.isfinite(float(bound[row])):
                yield name, distance_name(record.threat, float(bound[row]), in_255)
    for smoothed in evaluation.smoothing if record.threat == "l2" else ():
        right = int(smoothed.prediction[row]) == int(evaluation.label[row])
        yield (
            f"certified radius (σ = {smoothed.sigma:g})",
            distance_name("l2", float(smoothed.radius[row]) if right else 0.0),
        )
    if record.fresh is not None:
        yield "fresh draws that misclassify it", percent(float(record.fresh.share[row]))


def _way(gallery: Gallery, i: int) -> _Way | None:
    if gallery.segment is None:
        return None
    at, margin = gallery.segment.at, gallery.segment.margin[i].tolist()
    points = [
        f"{100 * place:.1f} {20 - 19 * value:.1f}" for place, value in zip(at, margin, strict=True) if place <= 1.5
    ]
    here, there = (f"{value:.2f}".replace("-", "−") for value in (margin[0], margin[-1]))
    words = (
        f"Margin of probabilities from the image, {here}, to {at[-1]:g} times its adversarial perturbation, {there}."
    )
    return _Way("M" + "L".join(points), words)


def _reduced(image: Tensor, side: int, mode: str) -> Tensor:
    height, width = image.shape[1:]
    scale = side / max(height, width)
    if scale >= 1:
        return image
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    return interpolate(image[None], size=size, mode=mode)[0]


def _class_name(evaluation: Evaluation, label: int) -> str:
    classes = evaluation.data.classes
    return classes[label] if 0 <= label < len(classes) else f"class {label}"
