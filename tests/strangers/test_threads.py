"""Several threads at once: each gets the numbers that it gets alone, and nothing of torch's stays changed."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from gradreg.calling.arithmetic import full_precision
from gradreg.errors import ModelError

THREADS = 3


def in_threads(work: Callable[[int], object]) -> list[object]:
    """What each thread returns; all begin at the same time."""
    ready = Barrier(THREADS)

    def begin(number: int) -> object:
        ready.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


def network(seed: int, *layers: nn.Module) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.GELU(), *layers, nn.Linear(64, 10))


def images(seed: int, n: int = 16) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    return torch.rand(n, 1, 8, 8, generator=stream), torch.randint(10, (n,), generator=stream)


def product_under_autocast() -> torch.dtype:
    with torch.autocast("cpu", torch.bfloat16):
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


def test_autocast_is_torch_s_own_afterwards() -> None:
    """Threads entered and left in turn put back what the other had changed, for good."""
    before = torch.autocast.__enter__
    first, second = full_precision("cpu", compiled=False), full_precision("cpu", compiled=False)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert product_under_autocast() == torch.float32
    second.__exit__(None, None, None)
    assert torch.autocast.__enter__ is before
    assert product_under_autocast() == torch.bfloat16


def test_autocast_of_another_thread_works_on() -> None:
    with full_precision("cpu", compiled=False), ThreadPoolExecutor(1) as pool:
        assert pool.submit(product_under_autocast).result() == torch.bfloat16
        assert product_under_autocast() == torch.float32


def test_penalties_are_those_of_one_thread() -> None:
    models = [network(number) for number in range(THREADS)]  # not in the threads, which share torch's random stream

    def penalties(number: int) -> list[float]:
        x, y = images(number)
        return [float(gradreg.regularized_loss(models[number], x, y, lam=0.1).penalty) for _ in range(20)]

    assert in_threads(penalties) == [penalties(number) for number in range(THREADS)]


def test_counts_and_distances_of_one_classifier_asked_by_several_threads() -> None:
    classifier = gradreg.Classifier(network(0).eval())

    def attacked(number: int) -> tuple[Tensor, Tensor, Tensor]:
        x, y = images(number, 6)
        with torch.no_grad():
            y = classifier(x).argmax(1)
        precision = "bf16" if number else "model"
        found = gradreg.attack(classifier, x, y, threat="linf", attacks="quick", precision=precision)
        return found.distance, found.forwards, found.backwards

    for alone, together in zip([attacked(number) for number in range(THREADS)], in_threads(attacked), strict=True):
        assert_close(together, alone, rtol=0, atol=0)


def test_draws_of_another_thread_within_a_step_are_noticed() -> None:
    """torch has one random stream for all threads, so the two passes of a difference cannot have the same masks."""

    models = [network(number, nn.Dropout(0.3)) for number in range(THREADS)]

    def train(number: int) -> None:
        x, y = images(number)
        for _ in range(60):
            gradreg.regularized_loss(models[number], x, y, lam=0.1)

    with pytest.raises(ModelError, match="one random stream for all threads"):
        in_threads(train)
