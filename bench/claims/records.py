"""Claims that the evaluations in results/paper answer: the paper's rows on the compact network, l∞ and l2."""

from functools import cache
from itertools import combinations
from pathlib import Path

import torch

from bench.claims.claim import Finding, holds
from bench.options import ClaimOptions
from gradreg.evaluation import load
from gradreg.evaluation.record import Bounded, Evaluation, ThreatRecord
from gradreg.report.comparison import Comparison

_ROWS = ("undefended", "at-2", "at-8", "linf-0.1", "linf-1", "l2-0.1", "l2-1")
_NEAR, _FAR = 2 / 255, 8 / 255
_RADII = (0.25, 0.5, 0.75, 1.0)


@cache
def _record(results: Path, row: str) -> Evaluation:
    return load(results / "paper" / row)


def _under(options: ClaimOptions, row: str, threat: str) -> ThreatRecord:
    return _record(options.results, row).threats[threat]


def _bounded(options: ClaimOptions, row: str, threat: str) -> Bounded:
    found = _under(options, row, threat).bounded
    assert found is not None, "every row of the paper was bounded"
    return found


def _n(options: ClaimOptions) -> str:
    record = _record(options.results, _ROWS[0])
    return f"n = {len(record)}, seed {record.settings.seed}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def lipschitz_bound_is_vacuous(options: ClaimOptions) -> Finding:
    """The fraction of images whose L-bound is below ε, in l∞."""
    errors = {
        row: [float((_bounded(options, row, "linf").lipschitz_bound < eps).double().mean()) for eps in (_NEAR, _FAR)]
        for row in _ROWS
    }
    told = "; ".join(f"{row} {_percent(near)} and {_percent(far)}" for row, (near, far) in errors.items())
    measured = f"L-bound error at l∞ 2/255 and 8/255 ({_n(options)}): {told}."
    return Finding(measured, holds(all(near == far == 1.0 for near, far in errors.values())))


def omega_bound_is_closer(options: ClaimOptions) -> Finding:
    """Mean L-bound, ω-bound and distance in l2."""
    means = {
        row: tuple(
            float(each[each.isfinite()].double().mean())
            for each in (
                _bounded(options, row, "l2").lipschitz_bound,
                _bounded(options, row, "l2").omega_bound,
                _under(options, row, "l2").distance,
            )
        )
        for row in _ROWS
    }
    told = "; ".join(f"{row} {low:.3f}, {high:.3f}, {far:.3f}" for row, (low, high, far) in means.items())
    measured = f"Mean L-bound, ω-bound and distance in l2 ({_n(options)}): {told}."
    return Finding(measured, holds(all(abs(far - high) <= abs(far - low) for low, high, far in means.values())))


def accuracy_is_traded_for_robustness(options: ClaimOptions) -> Finding:
    """Clean error and robust error at 8/255 and at l2 0.5 as λ rises."""
    told, fine = [], True
    for threat, eps, name in (("linf", _FAR, "l∞ 8/255"), ("l2", 0.5, "l2 0.5")):
        rows = ("undefended", f"{threat}-0.1", f"{threat}-1")
        clean = [float(_record(options.results, row).wrong.double().mean()) for row in rows]
        robust = [_under(options, row, threat).robust_error(eps).value for row in rows]
        fine = fine and clean == sorted(clean) and robust == sorted(robust, reverse=True)
        pairs = ", ".join(f"{_percent(one)} / {_percent(two)}" for one, two in zip(clean, robust, strict=True))
        told.append(f"{name}: {pairs}")
    measured = f"Clean / robust error for λ = 0, 0.1, 1 ({_n(options)}). {'; '.join(told)}."
    return Finding(measured, holds(fine))


def adversarial_training_is_slightly_better(options: ClaimOptions) -> Finding:
    """In l∞, against the best penalised row at each radius, with the hours of both."""
    comparison = Comparison.of([_record(options.results, row) for row in _ROWS])
    best = [
        min(_under(options, row, "linf").robust_error(eps).value for row in ("linf-0.1", "linf-1"))
        - min(_under(options, row, "linf").robust_error(eps).value for row in ("at-2", "at-8"))
        for eps in (_NEAR, _FAR)
    ]
    hours = {row: _record(options.results, row).subject.hours or float("nan") for row in _ROWS}
    ratio = hours["at-8"] / hours["linf-1"]
    measured = (
        f"Robust error of the best penalty less that of the best AT: {100 * best[0]:+.1f} points at 2/255, "
        f"{100 * best[1]:+.1f} at 8/255; AT took {ratio:.1f} times as long ({_n(options)}, "
        f"{len(comparison.evaluations)} rows)."
    )
    return Finding(measured, holds(min(best) >= 0 and ratio > 2))


def strong_penalty_wins_in_l2(options: ClaimOptions) -> Finding:
    """Mean l2 distance of λ = 1 against AT, with a paired interval over the same images."""
    far = {row: _under(options, row, "l2").distance.double() for row in ("l2-1", "at-2", "at-8")}
    told, fine = [], True
    for row in ("at-2", "at-8"):
        gain = far["l2-1"] - far[row]
        gain = gain[gain.isfinite()]
        mean, half = float(gain.mean()), 1.96 * float(gain.std()) / len(gain) ** 0.5
        fine = fine and mean - half > 0
        told.append(f"{mean:+.3f} (95 % interval {mean - half:+.3f} to {mean + half:+.3f}) against {row}")
    measured = f"Mean l2 distance of the squared l2 penalty, λ = 1: {' and '.join(told)} ({_n(options)}, paired)."
    return Finding(measured, holds(fine))


def gradients_and_omega_fall(options: ClaimOptions) -> Finding:
    """Mean gradient norm and ω(0.5) in l2 of every trained row against the undefended one."""
    figures = {
        row: (float(found.gradient_norm.double().mean()), found.omega_at(0.5))
        for row in _ROWS
        for found in [_bounded(options, row, "l2")]
    }
    plain = figures["undefended"]
    told = "; ".join(f"{row} {slope:.3f}, {omega:.3f}" for row, (slope, omega) in figures.items())
    fine = all(slope < plain[0] and omega < plain[1] for row, (slope, omega) in figures.items() if row != "undefended")
    return Finding(f"Mean ‖∇ℓ‖ and ω(0.5) in l2 ({_n(options)}): {told}.", holds(fine))


def smoothing_agrees_with_the_bounds(options: ClaimOptions) -> Finding:
    """Which of two models is better at an l2 radius: by the ω-bound, and by certificates of the smoothed classifier."""
    certified = [row for row in _ROWS if _record(options.results, row).smoothing]
    asked = [(*pair, eps) for pair in combinations(certified, 2) for eps in _RADII]
    orders = [[_order(options, *each, by_certificates) for by_certificates in (False, True)] for each in asked]
    decided = [order for order in orders if 0 not in order]
    same = sum(one == two for one, two in decided)
    measured = (
        f"Of {' and '.join(certified)}, certified with σ = 0.25, both name the same one as more robust at {same} of "
        f"{len(decided)} l2 radii where they differ ({_n(options)})."
    )
    return Finding(measured, holds(same == len(decided) > 0))


def _order(options: ClaimOptions, one: str, two: str, eps: float, by_certificates: bool) -> int:
    def right(row: str) -> int:
        record = _record(options.results, row)
        if by_certificates:
            return int(record.certified(record.smoothing[0], eps).sum())
        bound = _bounded(options, row, "l2").omega_bound
        return int((bound >= torch.tensor(eps, dtype=bound.dtype)).sum())

    return (right(one) > right(two)) - (right(one) < right(two))
