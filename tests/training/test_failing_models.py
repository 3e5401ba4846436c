"""A model that fails in a step is told with the shape of its images; a last batch of one image before training."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tiny import digits, network, tiny_fit
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from gradreg.errors import DataError, ModelError
from gradreg.objectives import Moment, Outcome

IMAGES = digits(40)
X, Y = IMAGES.floats(), IMAGES.labels
OBJECTIVES = ["undefended", {"name": "gradient", "eps": 0.1}]


def flat() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("kind", ["loader", "shuffled", "list"])
def test_a_last_batch_of_one_image_is_known_before(kind: str, objective: Any) -> None:
    rows = TensorDataset(X[:33], Y[:33])
    data: Any = [(X[:32], Y[:32]), (X[32:33], Y[32:33])]
    if kind != "list":
        data = DataLoader(rows, 8, shuffle=kind == "shuffled")
    model = flat()
    steps: list[Any] = []
    said = r"The last of the training batches holds one image, .* \(Expected more than 1 value per channel .*drop_last"
    with pytest.raises(DataError, match=said):
        tiny_fit(model=model, data=(data, [(X, Y)]), objective=objective, on_step=steps.append)
    assert steps == []
    assert model[2].num_batches_tracked == 0  # type: ignore[index]


def test_a_model_for_other_images_is_told_with_the_shape() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(7, 8), nn.BatchNorm1d(8))
    with pytest.raises(ModelError, match=r"failed on images of shape \(1, 1, 28, 28\): mat1 and mat2 shapes"):
        tiny_fit(model=model, data=([(X[:1], Y[:1])], [(X, Y)]))


def test_one_image_is_enough_where_channels_have_many_pixels_or_the_batch_is_left_out() -> None:
    rows = TensorDataset(X[:33], Y[:33])
    assert tiny_fit(data=(DataLoader(rows, 8), [(X, Y)]), epochs=1).metrics[0]["step"] == 5
    dropped = DataLoader(rows, 8, drop_last=True)
    assert tiny_fit(model=flat(), data=(dropped, [(X, Y)]), epochs=1).metrics[0]["step"] == 4


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 16

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(X, Y, strict=True)


@pytest.mark.filterwarnings("ignore:Length of IterableDataset", "ignore:The training batches were more than")
def test_of_a_stream_nobody_knows_the_last_batch() -> None:
    assert tiny_fit(model=flat(), data=(DataLoader(Stream(), 8), [(X, Y)]), epochs=1).metrics[0]["step"] == 2


class OneImage:
    """Nobody knows before that the second batch holds one image."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Any:
        return iter([(X[:8], Y[:8]), (X[8:9], Y[8:9])])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_model_that_fails_is_told_with_the_shape(objective: Any) -> None:
    with pytest.raises(ModelError, match=r"failed on images of shape \(1, 1, 28, 28\): Expected more than 1 value per"):
        tiny_fit(model=flat(), data=(OneImage(), [(X, Y)]), objective=objective)


class Asking:
    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, at: Moment, /) -> Outcome:
        model(x)
        raise ZeroDivisionError("mine")


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt(), torch.OutOfMemoryError("CUDA")])
def test_what_is_not_the_model_stays_what_it_is(error: BaseException) -> None:
    class Raising(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            raise error

    with pytest.raises(type(error)):
        tiny_fit(model=Raising(), objective="undefended")
    with pytest.raises(ZeroDivisionError, match="mine"):
        tiny_fit(model=network(), objective=Asking())
