"""Everything public where the caller has set torch's default device: gradreg's own tensors stay on the host.

"meta" stands for an accelerator: whatever is put there by mistake has no values, and fails when it is used.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gradreg
from arguments import toys
from arguments.calls import CALLS
from arguments.surface import entries
from arguments.toys import Counting
from arguments.trying import is_on_host, run
from gradreg.errors import ModelError

# Networks are built where the caller says.
_BUILDING = {"build", "load", "runs.open_model", "models.Normalize"}
_NAMES = [
    name
    for name, call in CALLS.items()
    if not call.heavy and name not in _BUILDING and not (call.needs and find_spec(call.needs) is None)
]


@pytest.mark.slow
@pytest.mark.parametrize("name", _NAMES)
def test_results_are_on_the_host(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_on_host(run(entries()[name], CALLS[name], {}, torch.device("meta")))


def test_numbers_do_not_depend_on_it() -> None:
    model, x, y = Counting(), toys.images(), toys.labels()
    exact = gradreg.attack(model, x, y, attacks="quick").distance
    certified = gradreg.certify(model, x, sigma=0.1, n=100).radius
    torch.manual_seed(0)
    slope = gradreg.regularized_loss(model, x, y, eps=0.1, noise=0.1).slope
    with torch.device("meta"):
        assert gradreg.attack(model, x, y, attacks="quick").distance.equal(exact)
        assert gradreg.certify(model, x, sigma=0.1, n=100).radius.equal(certified)
        torch.manual_seed(0)
        assert gradreg.regularized_loss(model, x, y, eps=0.1, noise=0.1).slope.equal(slope)


class Telling(nn.Module):
    """Remembers where its forward would make a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.seen = Counting(), set[str]()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add(torch.get_default_device().type)
        logits: Tensor = self.inner(x)
        return logits


def test_a_model_finds_what_its_caller_has_set() -> None:
    model, x, y = Telling().eval(), toys.images(), toys.labels()
    seen = set[str]()

    def criterion(logits: Tensor, y: Tensor) -> Tensor:
        seen.add(torch.get_default_device().type)
        return nn.functional.cross_entropy(logits, y, reduction="none")

    with torch.device("meta"):
        gradreg.attack(model, x, y, attacks=["deepfool"])
        gradreg.regularized_loss(model, x, y, eps=0.1, criterion=criterion)
        gradreg.fit(model, ([(x, y)], [(x, y)]), epochs=1, criterion=criterion, on_epoch=lambda at: seen.add("called"))
    assert (model.seen, seen) == ({"meta"}, {"meta", "called"})


def test_networks_are_built_there_and_not_loaded_into_nothing() -> None:
    with torch.device("meta"):
        network = gradreg.build("small", classes=10, mean=(0.5,), std=(0.5,))
        assert all(weight.is_meta for weight in network.parameters())
        assert "on the meta device" in str(network)
        with pytest.raises(ModelError, match="cannot be loaded into a network on the meta device"):
            gradreg.load("cifar10-l2")


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_a_default_type_changes_no_number(kind: torch.dtype) -> None:
    model, x, y = Counting(), toys.images(), toys.labels()
    mean, std = [0.4914, 0.4822, 0.4465], [0.247, 0.243, 0.261]
    normalised = gradreg.Classifier(model, mean=mean, std=std)(x)
    exact = gradreg.attack(model, x, y, attacks=["deepfool"])
    torch.set_default_dtype(kind)
    try:
        torch.testing.assert_close(gradreg.Classifier(model, mean=mean, std=std)(x), normalised, rtol=0, atol=1e-6)
        found = gradreg.attack(model, x, y, attacks=["deepfool"])
        assert found.distance.equal(exact.distance)
        assert found.robust_accuracy(0.05) == exact.robust_accuracy(0.05)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("objective", ["undefended", "noise", {"name": "gradient", "eps": 0.1}])
def test_a_network_in_double_precision_is_trained_on_images_of_bytes(objective: object) -> None:
    found = gradreg.fit(Counting().double(), toys.part(40, 1), objective, held_out=4, **toys.BRIEF)  # type: ignore[arg-type]
    single = gradreg.fit(Counting(), toys.part(40, 1), objective, held_out=4, **toys.BRIEF)  # type: ignore[arg-type]
    assert found.metrics[0]["loss"] == pytest.approx(single.metrics[0]["loss"], rel=1e-2)
