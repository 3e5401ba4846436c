"""Attacks on the pretended device: the host's results, image by image and query by query, with few looks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradreg
from accelerator.accelerated import CLASSES, HOST, assert_same, images, network, on, places
from accelerator.waits import watching
from gradreg.attacks.suite import ATTACKS
from gradreg.norms import THREATS

FEW: dict[str, dict[str, Any]] = {
    "deepfool": {"steps": 5},
    "ddn": {"steps": 20},
    "fmn": {"steps": 20},
    "pgd": {"steps": 8, "rounds": 3},
    "apgd": {"steps": 9, "rounds": 3, "losses": ("ce", "dlr", "t1")},
    "carlini_wagner": {"steps": 20, "rounds": 3},
    "boundary": {"steps": 60},
    "logbarrier": {"outer": 2, "inner": 6},
    "square": {"steps": 25},
}
EACH = [
    (name, threat)
    for name, attack in ATTACKS.items()
    if attack.claims
    for threat in THREATS
    if attack.supports(THREATS[threat])
]
RADIUS = {"l2": 0.3, "linf": 0.02, "l1": 2.0}


class Counted(nn.Module):
    """A model that counts its calls."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.calls, self.training = model, 0, False

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits: Tensor = self.model(x)
        return logits


class Rounded(nn.Module):
    """Sums, whose logits autocast rounds to two digits: torch's own does nothing on the device."""

    def __init__(self) -> None:
        super().__init__()
        draws = torch._C.Generator().manual_seed(3)
        self.first = nn.Parameter(torch.randn(16, 3 * 8 * 8, generator=draws) / 4)
        self.last = nn.Parameter(torch.randn(CLASSES, 16, generator=draws))
        self.training = False

    def forward(self, x: Tensor) -> Tensor:
        within = (x.flatten(1)[:, None].double() - 0.5).mul(self.first).sum(2)
        logits: Tensor = torch.tanh(within)[:, None].mul(self.last).sum(2)
        if torch.is_autocast_enabled(x.device.type):
            logits = logits.bfloat16()
        return logits.float()


def both(**options: Any) -> tuple[gradreg.AttackResult, gradreg.AttackResult]:
    """The results on the host and on the device."""
    here, there = (gradreg.attack(*on(place, network(), *images()), **options) for place in places())
    return here, there


@pytest.mark.parametrize("fixed", [False, True], ids=["nearest", "within"])
@pytest.mark.parametrize(("name", "threat"), EACH)
def test_each_attack_finds_what_it_finds_on_the_host(name: str, threat: str, fixed: bool) -> None:
    found = []
    for place in places():
        model, x, y = on(place, network(), *images())
        eps = RADIUS.get(threat, THREATS[threat].usual_radii[0]) if fixed else None
        found.append(ATTACKS[name](model, x, y, threat=threat, eps=eps, **FEW.get(name, {})))
    assert_same(found[1], found[0])
    assert bool(found[0].success.any())


@pytest.mark.parametrize(
    "options",
    [
        {"threat": "l2", "attacks": "standard"},
        {"threat": "linf", "attacks": "standard", "eps": 0.03},
        {"threat": "l1", "attacks": "standard"},
        {"threat": "linf", "attacks": "paper", "eps": 0.04},
        pytest.param({"threat": "l2", "attacks": "paper"}, marks=pytest.mark.slow),
        pytest.param({"threat": "linf", "attacks": "standard", "eps": 0.01}, marks=pytest.mark.slow),
        {"threat": "l2", "attacks": "quick", "batch_size": 5},
        {"threat": "linf", "attacks": "quick"},
        {"threat": "l1", "attacks": "quick"},
        # All ten, five, two, one and none of the images that are right are broken.
        *({"threat": "linf", "attacks": "quick", "eps": eps} for eps in (0.03, 0.01, 0.005, 0.003, 0.001)),
        {"threat": "linf", "attacks": "standard", "eps": 0.1},
        {"threat": "l2", "attacks": "quick", "eps": [0.05, 0.1, 0.3]},
        {"threat": "l2", "attacks": "quick", "quantize": 8},
        {"threat": "l2", "attacks": "quick", "budget": 40},
        {"threat": "l2", "attacks": ["deepfool"]},
        {"threat": "l2", "attacks": ["boundary"]},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_suites_find_what_they_find_on_the_host_and_seldom_look(options: dict[str, Any], device: torch.device) -> None:
    # A model that counts is asked once more at the end, here and there.
    here = gradreg.attack(Counted(network()), *images(), **options)
    model, x, y = on(device, Counted(network()), *images())
    with watching() as waits:
        there = gradreg.attack(model, x, y, **options)
    assert_same(there, here)
    assert len(waits.looks) <= model.calls / 8, waits.looks


@pytest.mark.parametrize(
    "options",
    [
        {"threat": "l2", "attacks": "standard"},
        {"threat": "linf", "attacks": "standard", "eps": 0.02},
        {"threat": "l2", "attacks": "quick"},
        {"threat": "linf", "attacks": "quick", "eps": 0.005},
        {"threat": "l2", "attacks": "quick", "eps": [0.05, 0.1, 0.3]},
        {"threat": "l2", "attacks": "quick", "budget": 40},
        {"threat": "linf", "attacks": "quick", "quantize": 8},
        {"threat": "l2", "attacks": ["boundary"]},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_low_precision_finds_what_it_finds_on_the_host_and_seldom_looks(
    options: dict[str, Any], device: torch.device
) -> None:
    x, _ = images()
    x = x.float()
    y = Rounded()(x).argmax(1)
    y[::6] = (y[::6] + 1) % CLASSES
    here = gradreg.attack(Counted(Rounded()), x, y, precision="bf16", **options)
    model, there_x, there_y = on(device, Counted(Rounded()), x, y)
    with watching() as waits:
        there = gradreg.attack(model, there_x, there_y, precision="bf16", **options)
    assert_same(there, here, atol=1e-5)  # of images in single precision
    assert int((here.success & (here.distance > 0)).sum()) >= 3
    assert len(waits.looks) <= model.calls / 8, waits.looks


@pytest.mark.parametrize(
    "options",
    [
        {"budget": 40, "attacks": ["fmn", "pgd"]},
        {"budget": 90, "attacks": ["boundary", "square"]},
        {"quantize": 8},
        {"topk": 2},
        {"eps": [0.1, 0.3, 0.6]},
        {"eps": [0.1, 0.3], "budget": 30},
        {"attacks": ["polish"], "start": 1},
    ],
    ids=str,
)
def test_options_mean_the_same(options: dict[str, Any]) -> None:
    found = []
    for place in places():
        model, x, y = on(place, network(), *images())
        more = {**options, "start": 1 - x} if "start" in options else options
        found.append(gradreg.attack(model, x, y, **{"attacks": "quick", **more}))
    assert_same(found[1], found[0])


def test_a_function_on_the_device_can_be_attacked(device: torch.device) -> None:
    model, x, y = on(device, network(), *images())
    there = gradreg.attack(lambda pixels: model(pixels), x, y, attacks="quick")
    assert_same(there, gradreg.attack(network(), *images(), attacks="quick"))


def test_a_classifier_moves_with_its_statistics(device: torch.device) -> None:
    classifier = gradreg.Classifier(network(), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    x, y = images()
    y = classifier(x).argmax(1)
    here = gradreg.attack(classifier, x, y, attacks="quick")
    key = classifier.fingerprint(x)
    classifier.to(device)
    there = gradreg.attack(classifier, *on(device, x, y), attacks="quick")
    assert_same(there, here)
    assert classifier.fingerprint(x.to(device)) == key


def test_work_that_was_begun_on_the_host_goes_on_there(tmp_path: Path, device: torch.device) -> None:
    """A pool is about weights and images, wherever they are."""
    path, (x, y) = tmp_path / "pool.safetensors", images()
    here = gradreg.attack(network(), x, y, attacks="quick", batch_size=4, resume=path)
    model, x, y = on(device, network(), x, y)
    with watching() as waits:
        there = gradreg.attack(model, x, y, attacks="quick", batch_size=4, resume=path)
    assert_same(there, here)
    assert not [look for look in waits.looks if "search.py" in look]


def test_results_of_both_places_are_pooled(device: torch.device) -> None:
    here, there = both(attacks="quick")
    pool = gradreg.Pool(len(here))
    pool.update(there)
    pool.update(here)
    assert pool.result.distance.device == HOST
    torch.testing.assert_close(pool.result.distance, here.distance)
    assert there.robust_accuracy(0.1) == here.robust_accuracy(0.1)
    assert_same(there.select(torch.tensor([3, 1])), here.select(torch.tensor([3, 1])))
    assert_same(there.select(torch.tensor([3, 1], device=device)), here.select(torch.tensor([3, 1])))


def test_a_model_that_overflows_is_refused_there_too(device: torch.device) -> None:
    model, x, y = on(device, network(), *images())

    def overflows(pixels: Tensor) -> Tensor:
        logits: Tensor = model(pixels)
        return logits / (pixels.flatten(1).sub(x.flatten(1)[: len(pixels)]).abs().amax(1, keepdim=True) < 0.2)

    with pytest.raises(gradreg.ModelError, match="not finite"):
        gradreg.attack(overflows, x, y, attacks=["pgd"])


def test_tensors_of_another_device_are_refused_in_a_sentence(device: torch.device) -> None:
    model, x, y = on(device, network(), *images())
    with pytest.raises(gradreg.GradregError, match=r"x must be on the model's device, pretended:0; got cpu"):
        gradreg.attack(model, x.cpu(), y.cpu())
    with pytest.raises(gradreg.GradregError, match=r"y must be on the device of x, pretended:0; got cpu"):
        gradreg.attack(model, x, y.cpu())
    with pytest.raises(gradreg.GradregError, match=r"start must be on the device of x, pretended:0; got cpu"):
        gradreg.attack(model, x, y, start=x.cpu())


def test_what_others_found_is_measured_where_the_model_is() -> None:
    pools = []
    for place in places():
        model, x, y = on(place, network(), *images())
        found = gradreg.attack(model, x, y, attacks="quick")
        pool = gradreg.Pool(len(x))
        pool.update(found.adversarial, model=model, x=x, y=y, name="theirs", threat="l2")
        assert str(found).splitlines()[0] == f"AttackResult: {len(x)} images, l2"
        assert len(found.to_dict()["images"]) == len(x)
        found.plot()
        pools.append(pool.result)  # on the host
    here, there = pools
    torch.testing.assert_close(there.distance, here.distance)
    assert there.winner == here.winner
    assert "theirs" in here.winner


def test_a_search_in_low_precision_holds_on_the_device() -> None:
    """Autocast of the pretended device may round otherwise than the host's; what is returned is adversarial on both."""
    for place in places():
        x, y = images()
        model, x, y = on(place, network().float(), x.float(), y)
        result = gradreg.attack(model, x, y, attacks="quick", precision="bf16")
        broken = (result.success & (result.distance > 0)).nonzero().flatten().tolist()
        assert broken
        for i in broken:
            assert int(model(result.adversarial[i : i + 1]).argmax(1)) != int(y[i])


class Alone(nn.Module):
    """The network, but a batch of one sees its boundaries a little farther away: what was found fails there."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.training = network(), False

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits + 1e-3 * nn.functional.one_hot(logits.topk(2).indices[:, 1], CLASSES) * (len(x) == 1)


@pytest.mark.parametrize("eps", [None, 0.01])
def test_what_fails_alone_is_mended_with_few_looks(eps: float | None, device: torch.device) -> None:
    x, y = images(20)
    here = gradreg.attack(Counted(Alone()), x, y, threat="linf", attacks="quick", eps=eps)
    assert not torch.equal(
        here.distance, gradreg.attack(network(), x, y, threat="linf", attacks="quick", eps=eps).distance
    )
    model, there_x, there_y = on(device, Counted(Alone()), x, y)
    with watching() as waits:
        there = gradreg.attack(model, there_x, there_y, threat="linf", attacks="quick", eps=eps)
    assert_same(there, here)
    assert len(waits.looks) <= model.calls / 8, waits.looks
