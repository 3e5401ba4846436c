"""What is printed during an evaluation: a progress bar with an ETA for the current stage, a line per finished one."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

from rich.console import Console

from gradreg import progress
from gradreg.diagnosis.flags import Flag
from gradreg.evaluation.record import Bounded, Confirmed, Smoothed, ThreatRecord
from gradreg.evaluation.redrawn import Redrawn
from gradreg.evaluation.shares import share_of, top_k


class ConsoleReporter:
    """Prints to a console; without one it prints nothing, and shows bars in notebooks only."""

    def __init__(self, console: Console | None, topk: int = 1) -> None:
        self.console, self.topk = console, topk

    def say(self, sentence: str) -> None:
        """A line."""
        if self.console is not None:
            self.console.print(sentence, highlight=False, soft_wrap=True, markup=False)

    def bar(self, stage: str) -> AbstractContextManager[progress.Progress]:
        """A callback for the progress of a stage; a bar on terminals and in notebooks."""
        return progress.bar(stage, self.console)

    def attacked(self, record: ThreatRecord, radius: float) -> None:
        """Attacks in one threat are finished."""
        share, what = record.robust_accuracy(radius), top_k("robust accuracy", self.topk)
        self.say(
            f"attacks {record.threat}: mean distance {record.mean_distance():.3g}, {what} at {radius:.3g}: "
            f"{100 * share.value:.1f} % (n = {share.n}), {record.attacked.seconds:.0f} s"
        )

    def redrawn(self, found: Redrawn, radius: float) -> None:
        """The same radius under fresh draws of a randomised model."""
        average, single = (100 * each for each in (share_of(found.robust(radius)).value, found.single(radius)))
        self.say(
            f"  under {found.clean.draws} fresh draws: {average:.1f} %, under one: {single:.1f} %; "
            f"{int(found.fooled.sum())} of {len(found.fooled)} adversarial images are misclassified"
        )

    def bounded(self, threat: str, bounded: Bounded | None, refusal: str) -> None:
        """Bounds for a threat are finished, or were refused."""
        if bounded is None:
            self.say(f"bounds {threat}: none. {refusal}")
            return
        self.say(
            f"bounds {threat}: mean L-bound {float(bounded.lipschitz_bound.mean()):.3g}, mean ω-bound "
            f"{float(bounded.omega_bound.mean()):.3g} ({bounded.method}, {bounded.calibration_images} images), "
            f"{bounded.seconds:.0f} s"
        )
        if bounded.calibrated is not None:
            mean, alpha = float(bounded.calibrated.bound.mean()), bounded.calibrated.alpha
            self.say(f"  calibrated: mean bound {mean:.3g}, for all but {100 * alpha:.3g} % of images")
        elif bounded.uncalibrated:
            self.say(f"  calibrated: none. {bounded.uncalibrated}")

    def diagnosed(self, threat: str, flags: Sequence[Flag]) -> None:
        """The diagnosis is finished: how many tests were run, and what the failed ones found."""
        failed = [flag for flag in flags if flag.severity != "info"]
        self.say(f"diagnosis {threat}: {len(flags)} tests, {len(failed)} with a finding")
        for flag in failed:
            self.say(f"  {flag.severity}: {flag.code}: {flag.finding} {flag.advice}".rstrip())

    def confirmed(self, record: ThreatRecord, confirmed: Confirmed, attacks: str) -> None:
        """AutoAttack at a radius is finished: its robust accuracy, and whether our attacks agree."""
        eps, n = confirmed.eps, len(confirmed.robust)
        robust = confirmed.robust, record.robust_to_attacks(eps), record.robust(eps)
        reference, ours, either = (f"{100 * share_of(each).value:.1f} %" for each in robust)
        self.say(
            f"autoattack {record.threat} at {eps:.3g}: robust accuracy {reference}, under {attacks} {ours}, under "
            f"both {either} (n = {n}), {confirmed.seconds:.0f} s"
        )
        missed, gained = int(record.missed(confirmed).sum()), int(record.gained(confirmed).sum())
        if missed:
            self.say(f"  AutoAttack broke {missed} of {n} images that {attacks} did not: their distances are too long.")
        if gained:
            self.say(f"  {attacks} broke {gained} of {n} images that AutoAttack did not.")

    def smoothed(self, smoothed: Smoothed, right: float) -> None:
        """Certificates for one σ are finished."""
        mean = float(smoothed.samples.double().mean())
        self.say(
            f"smoothing σ = {smoothed.sigma:g}: {100 * right:.1f} % certified at {smoothed.radii[0]:g} "
            f"(n = {len(smoothed.radius)}), {mean:.0f} samples per image, {smoothed.seconds:.0f} s"
        )
