"""What the measurements measure, and the memory that the penalty promises."""

from time import sleep
from typing import Any

import pytest
import torch
from torch import nn

from bench import measure
from bench.__main__ import main
from bench.options import TrainingOptions
from bench.training import SHAPES, table, training_costs
from gradreg import ConfigError, build, regularized_loss
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
    ("name", "activation", "images"),
    [
        ("small", "gelu", 32),
        ("compact", "gelu", 16),
        ("compact", "silu", 16),
        ("compact", "softplus", 16),
        ("resnext34_2x32", None, 4),
    ],
)
def test_the_penalty_needs_a_quarter_less_memory_than_double_backprop(
    name: str, activation: str | None, images: int
) -> None:
    """One graph at a time against one that is differentiated twice."""
    model = build(name, classes=10, **({"activation": activation} if activation else {}))
    x, y = torch.rand(images, *SHAPES[name]), torch.randint(0, 10, (images,))
    cross_entropy(model(x), y).mean().backward()

    def peak(**how: Any) -> int:
        def step() -> None:
            model.zero_grad(set_to_none=False)
            regularized_loss(model, x, y, **how).backward()

        return measure.peak_bytes(step)

    assert peak(lam=0.1) < 0.75 * peak(lam=0.1, method="double-backprop")


def test_a_step_holds_one_graph_at_a_time() -> None:
    """Of a deep network without wide layers: little more than plain training holds, where two graphs hold double."""
    widths = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GELU()) for _ in range(24)]
    model = nn.Sequential(*widths, nn.Flatten(), nn.Linear(8 * 256, 10))
    x, y = torch.rand(8, 8, 16, 16), torch.randint(0, 10, (8,))
    plain = measure.peak_bytes(lambda: cross_entropy(model(x), y).mean().backward())

    def share(**how: Any) -> float:
        return measure.peak_bytes(lambda: regularized_loss(model, x, y, **how).backward()) / plain

    for strength in ({"lam": 0.1}, {"eps": 0.1}):
        for how in ({}, {"order": 2}, {"fraction": 0.5, "step": 0}, {"h": 0.1}):
            assert share(**strength, **how) < 1.25
    assert share(lam=0.1, graphs=2) > 1.9


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_table_of_training_costs(channels_last: bool) -> None:
    found = training_costs(TrainingOptions(model="small", batch_size=8, rounds=1, channels_last=channels_last))
    costs = {cost.name: cost for cost in found}
    assert costs["plain"].seconds == costs["plain"].flops == costs["plain"].memory == 1.0
    for name, forwards in (
        ("penalty", 6),
        ("penalty, lazy 4", 3.75),
        ("penalty, fraction 1/4", 3.75),
        ("penalty, squared", 7),
        ("penalty, squared, central difference", 9),
    ):
        assert costs[name].flops == pytest.approx(forwards / 3, rel=0.03)
    loading = costs["data loading"]
    assert 0 < loading.seconds < 1
    assert loading.flops is loading.memory is None
    assert table(list(costs.values()), "small").row_count == len(costs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_compiled_steps_are_timed_beside_eager_ones() -> None:
    names = [
        cost.name for cost in training_costs(TrainingOptions(model="small", batch_size=8, rounds=1, compiled=True))
    ]
    assert names[-4:-1] == ["plain, compiled", "penalty, compiled", "penalty, squared, compiled"]


def test_where_nothing_can_be_compiled_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: nn.Module) -> nn.Module:
        broken = nn.Identity()
        broken.register_forward_pre_hook(no_compiler)
        return broken

    def no_compiler(*_: object) -> None:
        raise RuntimeError("no C++ compiler found\nand more")

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.raises(ConfigError, match=r"\(no C\+\+ compiler found\)\. Install a C\+\+ compiler") as caught:
        training_costs(TrainingOptions(model="small", batch_size=2, rounds=1, compiled=True))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("what", ["training", "certify", "attacks", "diagnosis"])
def test_every_measurement_has_a_command_and_refuses_what_cannot_be_measured(
    what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([what, "--help"])
    assert f"python -m bench {what}" in capsys.readouterr().out
    option = "--rounds" if what == "training" else "--images"
    with pytest.raises(SystemExit, match="2"):
        main([what, option, "0"])
    assert capsys.readouterr().err == f"bench: {option[2:]} must be at least 1; got 0.\n"
