"""Arrays and tensors as other programs make them: taken for what they say, or refused in one sentence."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gradreg
from gradreg.bounds.data import gather
from gradreg.errors import ConfigError, DataError, GradregError, ModelError
from gradreg.fingerprints import image_keys

X = 0.3 + 0.4 * torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def linear() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Linear(48, 4)).eval()


Y = linear()(X).argmax(1)
ARRAYS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "backwards": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "of the other order of bytes": lambda a: a.astype(a.dtype.newbyteorder()),
    "of extended precision": lambda a: a.astype(np.longdouble) if a.dtype.kind == "f" else a,
    "by columns": np.asfortranarray,
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_read_as_numpy_reads_them(name: str) -> None:
    x, y = gather((ARRAYS[name](X.numpy()), ARRAYS[name](Y.numpy())), None)
    assert torch.equal(x.float(), X)
    assert torch.equal(y, Y)


def test_labels_may_be_a_list_and_objects_are_no_images() -> None:
    assert torch.equal(gather((X.numpy(), Y.tolist()), None)[1], Y)
    with pytest.raises(DataError, match="must be numbers; got a ndarray of object"):
        gather((X.numpy().astype(object), Y.numpy()), None)


NOT_DENSE: dict[str, Callable[[], Tensor]] = {
    "sparse": X.to_sparse,
    "nested": lambda: torch.nested.nested_tensor(list(X)),
    "mkldnn": X.to_mkldnn,
}


@pytest.mark.parametrize("kind", NOT_DENSE)
def test_tensors_that_are_not_dense_are_refused(kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of a prototype
        made = NOT_DENSE[kind]()
    for call in (gradreg.attack, gradreg.diagnose):
        with pytest.raises(DataError, match="x must be a dense tensor"):
            call(linear(), made, Y)


def test_a_view_of_the_negative_is_its_numbers() -> None:
    assert torch.equal(image_keys(torch._neg_view(-X)), image_keys(X))
    found = gradreg.attack(linear(), torch._neg_view(-X), Y, attacks=["deepfool"]).distance
    assert torch.equal(found, gradreg.attack(linear(), X, Y, attacks=["deepfool"]).distance)


@torch.inference_mode()
def _of_inference_mode() -> tuple[Tensor, Tensor, Tensor]:
    return X.clone(), Y.clone(), nn.functional.one_hot(Y, 4).float()


def test_tensors_of_inference_mode_are_taken() -> None:
    x, y, soft = _of_inference_mode()
    found = gradreg.attack(linear(), x, y, attacks="quick").distance
    assert torch.equal(found, gradreg.attack(linear(), X, Y, attacks="quick").distance)
    plain = gradreg.regularized_loss(linear(), X, Y, lam=0.1)
    for target in (y, soft):
        out = gradreg.regularized_loss(linear(), x, target, lam=0.1)
        out.backward()
        assert torch.allclose(out.slope, plain.slope)


def test_frozen_torchscript_is_asked_as_its_model() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, which is to give TorchScript up
        frozen = torch.jit.freeze(torch.jit.trace(linear(), X))
    found = gradreg.attack(frozen, X, Y, attacks="quick").distance
    assert torch.allclose(found, gradreg.attack(linear(), X, Y, attacks="quick").distance, rtol=1e-4)
    slope = gradreg.regularized_loss(frozen, X, Y, lam=0.1).slope
    assert torch.allclose(slope, gradreg.regularized_loss(linear(), X, Y, lam=0.1).slope, rtol=1e-4)


@pytest.mark.parametrize(
    ("error", "said"), [(ValueError("one\n  two"), "one two"), (KeyError("k"), "KeyError 'k'"), (OSError(), "OSError")]
)
def test_what_a_model_raises_is_on_one_line(error: Exception, said: str) -> None:
    def model(x: Tensor) -> Tensor:
        raise error

    with pytest.raises(ModelError, match=rf"failed on images of shape \(6, 3, 4, 4\): {said}$"):
        gradreg.attack(model, X, Y)


def test_pixels_that_are_barely_outside_are_shown_in_full() -> None:
    with pytest.raises(DataError, match=r"to 1\.00000012, outside the box 0 to 1"):
        gradreg.attack(linear(), X / X.max() + 1e-7, Y)


class OneByOne:
    """A data set by position."""

    def __init__(self, entries: list[tuple[Tensor, Tensor]]) -> None:
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, position: int) -> tuple[Tensor, Tensor]:
        return self.entries[position]


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "sparse": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "a number": lambda x: x.sum(),
}
HELD: dict[str, Callable[[Callable[[Tensor], Tensor]], Any]] = {
    "tensors": lambda kind: (kind(X), Y),
    "labels": lambda kind: (X, kind(Y)),
    "a loader": lambda kind: [(kind(X), Y)],
    "a loader's labels": lambda kind: [(X, kind(Y))],
    "a data set": lambda kind: OneByOne([(kind(x), y) for x, y in zip(X, Y, strict=True)]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("held", HELD)
def test_data_of_such_tensors_is_refused_in_one_sentence(held: str, kind: str) -> None:
    for call in (gradreg.evaluate, gradreg.estimate_regularity):
        with pytest.raises(GradregError) as caught:
            call(linear(), HELD[held](KINDS[kind]))
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("kind", KINDS)
def test_images_of_such_kinds_do_not_enter_a_pool(kind: str) -> None:
    pool = gradreg.Pool(len(X))
    for changed in ({"result": KINDS[kind](X)}, {"x": KINDS[kind](X)}, {"y": KINDS[kind](Y)}):
        given = {"result": 1 - X, "x": X, "y": Y} | changed
        with pytest.raises(GradregError, match=f"^{next(iter(changed))} must"):
            pool.update(**given, model=linear(), threat="l2")
    assert len(pool.missing) == len(X)


def test_a_criterion_of_a_file_is_quoted_in_short(tmp_path: Path) -> None:
    found = gradreg.estimate_regularity(linear(), (X, Y), method="local", eps=[0.1], steps=1, rivals=1)
    replace(found, criterion="theirs." + "x" * 3000).save(tmp_path / "r.safetensors")
    read = gradreg.Regularity.load(tmp_path / "r.safetensors")
    for criterion in (None, "margin", lambda logits, y: logits[:, 0]):
        with pytest.raises(ConfigError, match=r"criterion (must be )?theirs\.xxx") as caught:
            gradreg.bounds(linear(), X, Y, read, criterion=criterion)
        assert len(str(caught.value)) < 300
    assert len(str(read)) < 1000


class Picture(Tensor):
    """As libraries of images have them."""


class Category(Tensor):
    """Of another class: torch refuses operations of both."""


@pytest.mark.parametrize("logits", [Tensor, Picture])
def test_classes_of_tensors_are_taken_as_the_values_they_hold(logits: type[Tensor]) -> None:
    torch.manual_seed(0)
    x, net = torch.rand(6, 1, 4, 4), nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    y = net(x).argmax(1)

    def model(x: Tensor) -> Tensor:
        found: Tensor = net(x)
        return found.as_subclass(logits)

    given, labels = x.as_subclass(Picture), y.as_subclass(Category)
    out, expected = (gradreg.regularized_loss(f, a, b, eps=0.1) for f, a, b in ((model, given, labels), (net, x, y)))
    assert type(out.loss) is type(out.logits) is Tensor
    torch.testing.assert_close(out.loss, expected.loss)
    found = gradreg.attack(model, given, labels, attacks="quick")
    assert type(found.distance) is type(found.adversarial) is Tensor
    torch.testing.assert_close(found.distance, gradreg.attack(net, x, y, attacks="quick").distance)
    assert len(gradreg.diagnose(model, given, labels)) == len(gradreg.diagnose(net, x, y))
