"""Loaders that nobody here wrote: what they give is what they said, or one sentence says that it is not."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradreg
from gradreg.errors import DataError, GradregWarning

X = 0.3 + 0.4 * torch.rand(8, 3, 4, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(8) % 4
BATCH = (X, Y)


class Loader:
    """Says that it has so many batches, and gives what a function gives."""

    def __init__(self, number: int, give: Callable[[], Any]) -> None:
        self.number, self.give = number, give

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.give())


def fit(kept: Any, held: Any, epochs: int = 2) -> float:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    return float(
        gradreg.fit(model, (kept, held), epochs=epochs, optimizer={"name": "sgd", "lr": 0.01}).metrics[-1]["loss"]
    )


TWO = Loader(2, lambda: [BATCH, BATCH])
BYTES = [((255 * X).round(), Y)]
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "no held-out batches": (TWO, [], "held-out batches must hold images.*got no batches"),
    "a generator of held-out batches": (TWO, iter([BATCH]), "held-out batches must be there in every epoch"),
    "held-out batches once": (
        TWO,
        Loader(1, iter([BATCH]).__iter__),
        "held-out batches must hold images in every epoch",
    ),
    "training batches once": (Loader(2, iter([BATCH] * 2).__iter__), [BATCH], "must be 2 in every epoch.*got none"),
    "an empty batch": (Loader(2, lambda: [BATCH, (X[:0], Y[:0])]), [BATCH], "training batches must hold one image"),
    "an empty held-out batch": (TWO, [BATCH, (X[:0], Y[:0])], "held-out batches must hold one image"),
    "pixels up to 255": (Loader(1, lambda: BYTES), [BATCH], r"training batches of fit must hold pixels in \[0, 1\]"),
    "held-out pixels up to 255": (TWO, BYTES, r"held-out batches of fit must hold pixels in \[0, 1\]"),
    "later pixels up to 255": (Loader(2, lambda: [BATCH, *BYTES]), [BATCH], "training batches of fit must hold pixels"),
    "later held-out pixels up to 255": (TWO, [BATCH, *BYTES], "held-out batches of fit must hold pixels"),
    "single images": (Loader(1, lambda: [(X[0], Y[0])]), [BATCH], "a DataLoader with batch_size=None gives single"),
    "single held-out images": (TWO, [(X[0], Y[0])], "held-out batches must be batches with a row per image"),
    "NaN": (Loader(1, lambda: [(X / 0 * 0, Y)]), [BATCH], "training batches of fit must hold finite pixels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_on_is_refused(name: str) -> None:
    kept, held, said = REFUSED[name]
    with pytest.raises(DataError, match=said):
        fit(kept, held)


@pytest.mark.parametrize(
    ("said", "warned"), [(1, "more than 1, their length, where"), (3, "2, and their length is 3: schedules")]
)
def test_a_length_that_is_not_the_number_of_batches_is_warned_of(said: int, warned: str) -> None:
    with pytest.warns(GradregWarning, match=f"batches were {warned}"):
        fit(Loader(said, lambda: [BATCH, BATCH]), [BATCH])


def test_a_loader_may_use_its_memory_again() -> None:
    memory = X.clone()

    def give() -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(2):
            yield memory.copy_(X), Y

    assert fit(Loader(2, give), [BATCH]) == fit(TWO, [BATCH])
