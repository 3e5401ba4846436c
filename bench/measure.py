"""Seconds, floating-point operations and peak memory of a step."""

import os
from collections.abc import Callable, Mapping
from time import perf_counter

from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

Step = Callable[[], object]


def seconds(steps: Mapping[str, Step], rounds: int) -> dict[str, float]:
    """Best time of each step over `rounds` in turn: what disturbs the machine then disturbs all of them alike."""
    best = dict.fromkeys(steps, float("inf"))
    for step in steps.values():
        step()
    for _ in range(rounds):
        for name, step in steps.items():
            start = perf_counter()
            step()
            best[name] = min(best[name], perf_counter() - start)
    return best


def flops(step: Step) -> int:
    """Multiplications and additions of the convolutions, matrix products and attention, counted.

    The fewer of two steps: the 10th, 100th, … of a model also tries whether it repeats.
    """
    counts = []
    for _ in range(2):
        with FlopCounterMode(display=False) as counter:
            step()
        counts.append(int(counter.get_total_flops()))
    return min(counts)


def peak_bytes(step: Step) -> int:
    """The most that a step holds at once in tensors of its own, from the allocator's log (CPU)."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as log:
        step()
    held = most = 0
    assert log.profiler is not None
    events = [event for event in log.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
