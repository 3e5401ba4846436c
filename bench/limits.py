"""`python -m bench limits`: how much larger radii are by the randomised limit than by Clopper & Pearson's.

Expected radii are exact sums over the counts; for the randomised limit over 64 values of its draw.
"""

from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console

from bench.options import LimitOptions
from bench.record import plain_table, write_json
from gradreg.provenance import machine
from gradreg.smoothing.rules import Cohen

SAMPLES = (1_000, 10_000, 100_000)
FREQUENCIES = (0.6, 0.9, 0.99, 0.999, 0.9999)
_DRAWS = (np.arange(64) + 0.5) / 64
# Of a distribution's mass, left out at either end.
_NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class LimitRow:
    """Expected radii in units of σ where the class has that frequency."""

    n: int
    frequency: float
    usual: float
    randomized: float

    @property
    def gain(self) -> float:
        """The share by which the randomised radius is larger."""
        return self.randomized / self.usual - 1


def expected_radius(n: int, frequency: float, alpha: float, randomized: bool) -> float:
    """The mean radius that Cohen's procedure gives, abstentions counting 0."""
    from scipy.stats import binom

    low, high = int(binom.ppf(_NEGLIGIBLE, n, frequency)), int(binom.isf(_NEGLIGIBLE, n, frequency))
    counts = np.arange(max(low, 0), min(high, n) + 1)
    weight = np.asarray(binom.pmf(counts, n, frequency))
    rule = Cohen((n,), 1.0, alpha, 1, None, randomized)
    draws = _DRAWS if randomized else _DRAWS[:1]
    hits = counts.astype(float)
    radii = [np.maximum(rule.radius(hits, hits, np.full(len(hits), draw)), 0) for draw in draws]
    return float(weight @ np.mean(radii, 0) / weight.sum())


def show(options: LimitOptions, console: Console) -> list[LimitRow]:
    """Print the table, and write the JSON file if one is named."""
    rows = [
        LimitRow(n, p, *(expected_radius(n, p, options.alpha, randomized) for randomized in (False, True)))
        for n in SAMPLES
        for p in FREQUENCIES
    ]
    table = plain_table(f"expected radii over σ, α = {options.alpha:g}", ("n", "p_A", "usual", "randomised", "gain"), 1)
    for row in rows:
        table.add_row(
            f"{row.n:,}", f"{row.frequency:g}", f"{row.usual:.3f}", f"{row.randomized:.3f}", f"{row.gain:.2%}"
        )
    console.print(table)
    if options.json is not None:
        figures: list[object] = [{**asdict(row), "gain": row.gain} for row in rows]
        write_json(options.json, {"alpha": options.alpha, "machine": machine(), "rows": figures})
    return rows
