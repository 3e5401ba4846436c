"""What the measurements measure, and the memory that the penalty promises."""

from time import sleep

import pytest
import torch

from gradreg import build, regularized_loss
from gradreg.bench import measure
from gradreg.bench.training import table, training_costs
from gradreg.losses import cross_entropy


def test_peak_bytes_of_a_step_with_a_known_peak() -> None:
    def step() -> None:
        kept = torch.ones(1_000_000)
        torch.ones(500_000)
        del kept
        torch.ones(750_000)

    assert measure.peak_bytes(step) == pytest.approx(6_000_000, rel=0.01)


def test_seconds_are_the_best_of_interleaved_rounds() -> None:
    calls: list[str] = []

    def slow() -> None:
        calls.append("slow")
        sleep(0.02)

    def fast() -> None:
        calls.append("fast")

    best = measure.seconds({"slow": slow, "fast": fast}, rounds=2)
    assert best["slow"] >= 0.02 > best["fast"]
    assert calls == ["slow", "fast"] * 3


def test_flops_of_a_matrix_product() -> None:
    assert measure.flops(lambda: torch.ones(3, 4) @ torch.ones(4, 5)) == 2 * 3 * 4 * 5


@pytest.mark.parametrize(
    ("name", "activation", "share"), [("small", "gelu", 0.75), ("compact", "silu", 0.75), ("compact", "gelu", 0.86)]
)
def test_the_penalty_needs_less_memory_than_double_backprop(name: str, activation: str, share: float) -> None:
    """Two graphs of the loss against one that is differentiated twice: a quarter less on some networks, not on all.

    The penalty's own peak is twice that of plain training everywhere; it is double backprop's that differs.
    """
    model = build(name, classes=10, activation=activation)
    x, y = torch.rand(32, *{"small": (1, 28, 28), "compact": (3, 32, 32)}[name]), torch.randint(0, 10, (32,))
    plain = measure.peak_bytes(lambda: cross_entropy(model(x), y).mean().backward())
    ours = measure.peak_bytes(lambda: regularized_loss(model, x, y, lam=0.1).backward())
    exact = measure.peak_bytes(lambda: regularized_loss(model, x, y, lam=0.1, method="double-backprop").loss.backward())
    assert ours < share * exact
    assert ours < 2.05 * plain


def test_the_table_of_training_costs() -> None:
    costs = {cost.name: cost for cost in training_costs("small", batch_size=8, rounds=1)}
    assert costs["plain"].seconds == costs["plain"].flops == costs["plain"].memory == 1.0
    assert costs["penalty"].flops == pytest.approx(7 / 3, rel=0.03)
    assert costs["lazy 4"].flops == pytest.approx(4 / 3, rel=0.03)
    assert costs["fraction 1/4"].flops == pytest.approx(4 / 3, rel=0.03)
    assert costs["central difference"].flops == pytest.approx(10 / 3, rel=0.03)
    assert table(list(costs.values()), "small").row_count == len(costs)
