"""What `python -m bench certify` found, as tables and against what was promised."""

from dataclasses import dataclass

from rich.table import Table

from bench.certify import BoundRow, Cost, SmoothingRow
from bench.clever import CleverRow
from bench.record import Target, plain_table


@dataclass(frozen=True)
class Report:
    """All rows, in the order they are shown."""

    bounds: list[BoundRow]
    smoothing: list[SmoothingRow]
    cost: Cost
    clever: CleverRow

    def targets(self) -> list[Target]:
        """What this command has to show, and whether it does."""
        wanted = ("regularised", "local", "probabilities", "ω")
        local = [row for row in self.bounds if (row.network, row.method, row.scores, row.bound) == wanted]
        held = [
            Target(
                f"local ω-bound, {row.threat}: ≤ 2 % violated at tightness ≥ 0.7",
                f"{row.rate:.1%} at {row.tightness:.2f}",
                row.rate <= 0.02 and row.tightness >= 0.7,
            )
            for row in local
        ]
        smoothed = [row for row in self.smoothing if row.network == "regularised"]
        one, grid = smoothed[0], smoothed[-1]
        fewer = [
            Target(
                f"{name}: ≥ {wanted}× fewer samples, certified within 1 point",
                f"{row.saving:.1f}×, {100 * row.gap:+.1f} points to Cohen's",
                row.saving >= wanted and abs(row.gap) <= 0.01 + 1e-9,
            )
            for name, wanted, row in (("one radius", 10, one), ("grid of radii", 4, grid))
        ]
        cost = Target(
            "bounds of known regularity: ≤ 1.1 forwards and backwards",
            f"{self.cost.ratio:.3f}",
            self.cost.ratio <= 1.1,
        )
        theirs = self.clever.art_seconds
        faster = None if theirs is None else theirs / self.clever.seconds
        peer = Target(
            "CLEVER: ≥ 5× faster than ART at equal points",
            "ART is not installed" if faster is None else f"{faster:.1f}×",
            None if faster is None else faster >= 5,
        )
        return [*held, *fewer, cost, peer]


def bounds_table(rows: list[BoundRow], title: str) -> Table:
    """All of them are heuristic: none is a certificate, and a better attack can only find more violations."""
    table = plain_table(title, ("network", "threat", "method", "violated", "worst", "tightness", "n"), left=3)
    for row in rows:
        # Probabilities go without saying, as in the paper.
        name = (row.network, row.threat, f"{row.method} {row.bound}{', logits' * (row.scores == 'logits')}")
        table.add_row(*name, f"{row.rate:.1%}", f"{row.worst_ratio:.3f}", f"{row.tightness:.2f}", str(row.n))
    return table


def smoothing_table(rows: list[SmoothingRow], title: str) -> Table:
    """Certified shares are of the smoothed classifier, with the right class."""
    table = plain_table(title, ("network", "radii", "samples", "Cohen's", "fewer", "certified", "Cohen's"), left=2)
    for row in rows:
        shares = (" ".join(f"{share:.0%}" for share in part) for part in (row.certified, row.cohen_certified))
        radii = " ".join(f"{radius:g}" for radius in row.radii)
        counts = f"{row.samples:,.0f}", f"{row.cohen_samples:,.0f}", f"{row.saving:.1f}×"
        table.add_row(row.network, radii, *counts, *shares)
    return table


def cost_table(cost: Cost, peer: CleverRow, images: int) -> Table:
    """Best of interleaved rounds."""
    table = plain_table("time", ("what", "ours", "beside", "ratio"), left=1)
    forward = f"{cost.baseline:.3f} s: one forward, one backward"
    table.add_row(f"bounds of {images:,} images", f"{cost.seconds:.3f} s", forward, f"{cost.ratio:.3f}")
    if peer.art_seconds is None:
        beside, ratio = "ART is not installed", "–"
    else:
        beside, ratio = f"{peer.art_seconds:.2f} s: ART", f"{peer.seconds / peer.art_seconds:.4f}"
    table.add_row(f"CLEVER, one image, {peer.points:,} points", f"{peer.seconds:.2f} s", beside, ratio)
    return table
