"""Epochs are as long as a loader says: one that gives more, or never ends, and one that says nothing."""

from collections.abc import Iterator
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import digits, same_weights, stopped_after, tiny_fit
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from gradreg.errors import DataError
from gradreg.training import sources

IMAGES = digits(60)
X, Y = IMAGES.floats(), IMAGES.labels
BATCHES = [(X[at : at + 20], Y[at : at + 20]) for at in (0, 20, 40)]
MORE = partial(pytest.warns, UserWarning, match="The training batches were more than 2, their length, where an epoch")


class Longer(list[Any]):
    def __len__(self) -> int:
        return 2


class Endless:
    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Any]:
        return repeat(BATCHES[0])


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return repeat((X[0], Y[0]))


@pytest.mark.parametrize("loader", [Longer(BATCHES), Endless()], ids=["longer", "endless"])
@pytest.mark.parametrize("stop", [2, 5])
def test_an_epoch_ends_at_the_length_and_resumes(loader: Any, stop: int, tmp_path: Path) -> None:
    data = loader, [(X, Y)]
    with MORE():
        whole = tiny_fit(tmp_path / "whole", data=data, epochs=3)
    assert [row["step"] for row in whole.metrics] == [2, 4, 6]
    with MORE():
        stopped_after(stop, tmp_path / "stopped", data=data, epochs=3)
        tiny_fit(tmp_path / "stopped", data=data, epochs=3, resume=True)
    assert same_weights(tmp_path / "whole", tmp_path / "stopped")


def test_a_stream_without_length_is_refused() -> None:
    with pytest.raises(DataError, match="must have a length, which schedules need; got a DataLoader without one"):
        tiny_fit(data=(DataLoader(Stream(), 4), [(X, Y)]))


def test_held_out_batches_must_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST_HELD_OUT", 5)
    with pytest.raises(DataError, match="The data must end; got more than 5 batches of a loader: pass a part of it"):
        tiny_fit(data=(BATCHES, DataLoader(Stream(), 4)), epochs=1)


class Burning(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 60

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        if position == 59:
            raise OSError("disk on fire")
        return X[position], Y[position]


def test_a_loader_that_fails_says_where() -> None:
    with pytest.raises(DataError, match=r"The data failed at batch 3 of epoch 1 \(OSError: disk on fire\)\."):
        tiny_fit(data=(DataLoader(Burning(), 20), [(X, Y)]), epochs=1)
    with pytest.raises(DataError, match=r"The data failed at batch 2 \(OSError: disk on fire\)\."):
        tiny_fit(data=(BATCHES, DataLoader(Burning(), 30)), epochs=1)
    torch.rand(1)  # the global generator is usable afterwards
