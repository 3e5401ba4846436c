"""Bounds, certificates, diagnosis and inspection on the pretended device: the host's answers, and loaders are moved."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gradreg
from accelerator.accelerated import HOST, assert_same, images, network, on, places
from accelerator.waits import watching
from gradreg.bounds.curvature import curvature
from gradreg.diagnosis.broken import broken_models

FEW: dict[str, Any] = {"eps": [0.1, 0.2, 0.4], "block_size": 4, "batch_size": 32}


def calibration() -> tuple[Tensor, Tensor]:
    x = torch.rand(84, 3, 8, 8, generator=torch._C.Generator().manual_seed(2), dtype=torch.float64)
    with torch.no_grad():
        return x, network()(x).argmax(1)


def loader() -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*calibration()), batch_size=16)


def estimated(place: torch.device, data: Any, method: str, threat: str = "l2") -> Any:
    return gradreg.estimate_regularity(on(place, network()), data, threat, method=method, **FEW)  # type: ignore[arg-type]


@pytest.mark.parametrize(("method", "threat"), [("paper", "l2"), ("ascent", "linf"), ("local", "l2"), ("local", "l1")])
def test_bounds_are_the_host_s(method: str, threat: str) -> None:
    found = []
    for place in places():
        model, x, y = on(place, network(), *images())
        data = (x, y) if method == "local" else tuple(on(place, *calibration()))
        regularity = estimated(place, data, method, threat)
        found.append((regularity, gradreg.bounds(model, x, y, regularity)))
    (here, bound_here), (there, bound_there) = found
    assert_same(bound_there, bound_here)
    # A regularity is a record of numbers about a model and lives on the host, like the file it is saved to.
    assert_same(there, here, place=HOST)


@pytest.mark.parametrize("method", ["paper", "ascent", "local"])
def test_batches_of_a_loader_are_moved_to_the_model(method: str, device: torch.device) -> None:
    here = estimated(HOST, calibration(), method)
    assert_same(estimated(device, loader(), method), here, place=HOST)


def test_a_function_takes_the_batches_as_they_are(device: torch.device) -> None:
    model = on(device, network())
    here = estimated(HOST, calibration(), "ascent")
    there = gradreg.estimate_regularity(lambda x: model(x.to(device)).cpu(), loader(), method="ascent", **FEW)
    assert_same(there, here, place=HOST)


def test_violations_compare_results_of_the_device(device: torch.device) -> None:
    bound, distance = torch.tensor([0.1, 0.2, 0.5, 0.3]), torch.tensor([0.2, 0.1, 0.0, torch.inf])
    here = gradreg.violations(bound, distance)
    assert gradreg.violations(bound.to(device), distance.to(device)) == here
    assert gradreg.violations(bound.to(device), distance) == here


CALLS: dict[str, Callable[[nn.Module, Tensor, Tensor], Any]] = {
    "clever": lambda model, x, y: gradreg.clever(model, x, y, blocks=5, samples=6),
    "clever linf": lambda model, x, y: gradreg.clever(model, x, y, threat="linf", blocks=4, samples=6),
    "curvature": lambda model, x, y: (found := curvature(model, x, y, steps=8), found.bound(), found.bound(2.0)),
    "certify": lambda model, x, y: gradreg.certify(model, x, sigma=0.1, n=400),
    "certify cohen": lambda model, x, y: gradreg.certify(model, x, sigma=0.1, n=200, method="cohen"),
    "certify radii": lambda model, x, y: gradreg.certify(model, x, sigma=0.1, n=400, radii=[0.05, 0.1]),
    "certify labels": lambda model, x, y: gradreg.certify(model, x, sigma=0.1, n=400, labels=y, topk=2),
    "diagnose": lambda model, x, y: gradreg.diagnose(model, x, y, threat="l2", eps=0.3),
    "diagnose linf": lambda model, x, y: gradreg.diagnose(model, x, y, threat="linf", eps=0.02),
    "diagnose l1": lambda model, x, y: gradreg.diagnose(model, x, y, threat="l1", eps=3.0),
    "inspect": lambda model, x, y: gradreg.inspect_image(
        model, x[1], int(y[1]), attacks="fmn,deepfool", sigma=0.1, samples=200
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_measures_are_the_host_s(name: str) -> None:
    here, there = (CALLS[name](*on(place, network(), *images())) for place in places())
    assert_same(there, here)


@pytest.mark.parametrize(
    "name", ["noise inside", "probabilities", "not a number", "optimises inside", "input quantised"]
)
def test_masked_models_raise_the_host_s_flags(name: str) -> None:
    found = []
    for place in places():
        model, x, y = on(place, network(), *images())
        masked, code = broken_models(model)[name]
        flags = gradreg.diagnose(masked, x, y, eps=0.3)
        assert next(flag for flag in flags if flag.code == code).severity != "info"
        found.append([(flag.code, flag.severity) for flag in flags])
    assert found[0] == found[1]


def test_claims_about_the_model_are_compared_there(device: torch.device) -> None:
    found = []
    for place in places():
        model, x, y = on(place, network(), *images())
        result = gradreg.attack(model, x, y, attacks="quick")
        bound = gradreg.bounds(model, x, y, estimated(place, (x, y), "local"))
        claims: dict[str, Any] = {"attack_result": result, "bound": bound, "sound": torch.full((len(x),), 0.01)}
        found.append(gradreg.diagnose(model, x, y, threat="l2", eps=0.3, **claims))
    assert_same(found[1], found[0])


def test_certify_waits_once_per_batch(device: torch.device) -> None:
    model, x, _ = on(device, network(), *images())
    with watching() as waits:
        gradreg.certify(model, x, sigma=0.1, n=2000, batch_size=400, method="cohen")
    batches = -(-(len(x) * 2100) // 400)
    assert len([look for look in waits.looks if "sampling.py" in look]) <= batches + 1


@pytest.mark.parametrize("method", ["paper", "ascent", "local"])
def test_estimates_look_as_often_with_more_radii(method: str, device: torch.device) -> None:
    """Looks belong to batches, not to the radii or the images of a search."""
    model, data, looks = on(device, network()), tuple(on(device, *calibration())), []
    for radii in (2, 8):
        few: dict[str, Any] = {**FEW, "eps": [0.05 * (1 + place) for place in range(radii)], "samples": 2}
        with watching() as waits:
            gradreg.estimate_regularity(model, data, method=method, **few)  # type: ignore[arg-type]
        looks.append(len([look for look in waits.looks if "bounds/" in look]))
    assert looks[1] == looks[0]
    batches = -(-len(data[0]) // few["batch_size"])
    assert looks[0] <= 8 + 4 * batches


def test_tensors_of_another_device_are_refused_in_a_sentence(device: torch.device) -> None:
    model, x, y = on(device, network(), *images())
    regularity = estimated(device, loader(), "ascent")
    for call in (
        lambda: gradreg.bounds(model, x.cpu(), y.cpu(), regularity),
        lambda: gradreg.estimate_regularity(model, (x.cpu(), y.cpu()), **FEW, method="local"),
        lambda: gradreg.clever(model, x.cpu(), y.cpu()),
        lambda: curvature(model, x.cpu(), y.cpu()),
        lambda: gradreg.certify(model, x.cpu(), sigma=0.1),
        lambda: gradreg.diagnose(model, x.cpu(), y.cpu()),
        lambda: gradreg.inspect_image(model, x[0].cpu()),
    ):
        with pytest.raises(gradreg.GradregError, match=r"x must be on the model's device, pretended:0; got cpu"):
            call()
    for call in (
        lambda: gradreg.bounds(model, x, y.cpu(), regularity),
        lambda: gradreg.estimate_regularity(model, (x, y.cpu()), **FEW, method="local"),
        lambda: gradreg.clever(model, x, y.cpu()),
        lambda: curvature(model, x, y.cpu()),
        lambda: gradreg.diagnose(model, x, y.cpu()),
    ):
        with pytest.raises(gradreg.GradregError, match=r"y must be on the device of x, pretended:0; got cpu"):
            call()
    with pytest.raises(gradreg.GradregError, match=r"labels must be on the device of x, pretended:0; got cpu"):
        gradreg.certify(model, x, sigma=0.1, n=100, labels=y.cpu())
