"""A data set that fails is one sentence that says where, and a loader without end is refused."""

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import gradreg
from gradreg.bounds.data import gather
from gradreg.data import asking, pairs
from gradreg.data.asking import entries, length
from gradreg.errors import DataError, GradregWarning

X, Y = torch.rand(12, 1, 4, 4), torch.arange(12) % 3


class Failing(Dataset[tuple[Tensor, Tensor]]):
    """Gives images up to the fifth."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __len__(self) -> int:
        return 12

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        if position == 5:
            raise self.error
        return X[position], Y[position]


class Endless(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return repeat((X[0], Y[0]))


class EndlessWithLength(Endless):
    def __len__(self) -> int:
        return 16


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("disk on fire"), r"RuntimeError: disk on fire"),
        (StopIteration(), "StopIteration"),
        (KeyError("label"), "KeyError 'label'"),
        (TypeError(), "TypeError"),
    ],
)
def test_a_data_set_that_fails_is_told_with_the_position(error: Exception, said: str) -> None:
    with pytest.raises(DataError, match=rf"^The data failed at image 5 \({said}\)\.$") as caught:
        gather(Failing(error), None)
    assert caught.value.__cause__ is error
    with pytest.raises(DataError, match="failed at image 5"):
        gradreg.evaluate(network(), Failing(error), threat="l2")


def test_a_loader_that_fails_is_told_with_the_batch() -> None:
    with pytest.raises(DataError, match=r"^The data failed at batch 2 \(RuntimeError: disk on fire\)\.$"):
        gather(DataLoader(Failing(RuntimeError("disk on fire")), 4), None)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_of_a_worker_its_error_is_told_and_not_its_traceback() -> None:
    with pytest.raises(DataError, match=r"^The data failed at batch 2 \(ValueError: disk on fire\)\.$"):
        gather(DataLoader(Failing(ValueError("disk on fire")), 4, num_workers=1), None)


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), torch.OutOfMemoryError(), DataError("mine")])
def test_what_is_no_failure_of_the_data_stays_what_it_is(error: BaseException) -> None:
    for data in (Failing(error), DataLoader(Failing(error), 4)):
        with pytest.raises(type(error)) as caught:
            gather(data, None)
        assert caught.value is error


@pytest.mark.parametrize(
    "data", [lambda: repeat((X, Y)), lambda: DataLoader(Endless(), 4), lambda: DataLoader(EndlessWithLength(), 4)]
)
@pytest.mark.filterwarnings("ignore:Length of IterableDataset:UserWarning")
def test_a_loader_without_end_is_refused(data: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "__defaults__", (100,))
    with pytest.raises(DataError, match=r"The data must end; got more than 100 batches of a loader"):
        gradreg.evaluate(network(), data(), threat="l2", images=8)


def test_images_that_the_memory_cannot_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "memory", lambda: 10 * X.nbytes)
    assert len(gather([(X, Y)] * 5, None)[0]) == 60
    with pytest.raises(DataError, match=r"at most 3,840 bytes, half of this machine's memory; got more with 72 images"):
        gather(repeat((X, Y)), None)


def test_a_long_loader_that_says_its_length_is_read_to_its_end() -> None:
    assert len(list(entries([(X, Y)] * 30, 10))) == 30
    with pytest.raises(DataError, match="more than 10 batches of a loader: pass a part"):
        list(entries(iter([(X, Y)] * 30), 10))


def test_a_loader_that_ends_early_is_said() -> None:
    with pytest.warns(GradregWarning, match="ended after 1 batches of a loader of length 3"):
        gather(DataLoader(Failing(StopIteration()), 4), None)


def test_lengths() -> None:
    class Broken(Endless):
        def __len__(self) -> int:
            raise ValueError("not counted yet")

    assert length([1, 2]) == 2
    assert length(DataLoader(Endless(), 4)) is length(iter([])) is None
    assert length(DataLoader(EndlessWithLength(), 4)) == 4
    with pytest.raises(DataError, match=r"failed at the length of a loader \(ValueError: not counted yet\)"):
        length(DataLoader(Broken(), 4))
    assert asking.length(3) is None
