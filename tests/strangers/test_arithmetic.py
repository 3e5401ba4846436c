"""Low precision inside a model, and an h too small for any: in full precision, or refused with an h that will do."""

import copy
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradreg import ModelError, PrecisionError, regularized_loss

X = torch.rand(32, 3, 16, 16, generator=torch.Generator().manual_seed(4))
Y = torch.randint(0, 10, (32,), generator=torch.Generator().manual_seed(5))


class Transformer(nn.Module):
    """A small ViT."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Conv2d(3, 32, 4, 4), nn.Linear(32, 10)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(self.embed(x).flatten(2).transpose(1, 2)).mean(1))
        return logits


def convolutional(activation: Callable[[], nn.Module] = nn.GELU) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        activation(),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


NETS: dict[str, Callable[[], nn.Module]] = {"vit": Transformer, "convolutional": convolutional}


class Autocast(nn.Module):
    """As Accelerate and Trainer wrap a forward: bf16 inside, float32 outside."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits: Tensor = self.net(x)
        return logits.float()


class Rounding(Autocast):
    """As Fabric's bf16-mixed: the images are rounded before autocast begins."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.bfloat16())


class Half(nn.Module):
    """A model of bf16 weights that takes and returns float32, as FSDP2 with an output dtype."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = copy.deepcopy(net).bfloat16()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x.bfloat16())
        return logits.float()


class TenBits(nn.Module):
    """Products as of TF32: ten bits of a float32 activation are kept."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.net[:-1](x)  # type: ignore[index]
        kept = (hidden.detach().view(torch.int32) + 0x1000).bitwise_and(~0x1FFF).view(torch.float32)
        logits: Tensor = self.net[-1](hidden + (kept - hidden).detach())  # type: ignore[index]
        return logits


def wrapped_forward(net: nn.Module) -> nn.Module:
    """The method replaced, as Accelerate does it: the class stays."""
    inner = copy.deepcopy(net)
    inner.forward = torch.autocast("cpu", torch.bfloat16)(inner.forward)
    return inner


def error(measured: Tensor, reference: Tensor) -> float:
    return float((measured - reference).abs().mean() / reference.mean())


@pytest.mark.parametrize("wrap", [Autocast, wrapped_forward])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("how", [{"lam": 0.1}, {"threat": "linf", "lam": 0.1}, {"threat": "linf", "eps": 4 / 255}])
def test_autocast_inside_a_model_is_off_during_the_passes(net: str, wrap: Any, how: dict[str, Any]) -> None:
    plain = NETS[net]()
    odd = wrap(plain)
    regularized_loss(plain, X, Y, **how).loss.backward()
    expected = [p.grad.clone() for p in plain.parameters() if p.grad is not None]
    plain.zero_grad()
    reference = regularized_loss(plain, X, Y, **how)
    out = regularized_loss(odd, X, Y, **how)
    assert torch.equal(out.slope, reference.slope)
    out.loss.backward()
    found = [p.grad for p in odd.parameters()]
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        assert not torch.equal(odd(X), plain(X)), "outside of the call the model computes as ever"


@pytest.mark.parametrize("wrap", [Half, Autocast])
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("threat", ["l2", "linf"])
def test_low_precision_inside_is_refused_and_the_named_h_will_do(net: str, wrap: Any, threat: Any) -> None:
    plain = NETS[net]()
    odd, how = wrap(plain), {"threat": threat, "lam": 0.1, "autocast": "keep"}
    with pytest.raises(
        PrecisionError, match=r"^Rounding makes up about \d+% of a finite difference over h = 0\.01"
    ) as e:
        regularized_loss(odd, X, Y, **how)
    safe = float(re.findall("use h ≥ ([0-9.e+-]+)", str(e.value))[0])
    assert 0.01 < safe < 10
    low, full = (regularized_loss(each, X, Y, h=safe, **how) for each in (odd, plain))
    assert error(low.slope, full.slope) < 0.15
    with pytest.raises(PrecisionError):
        regularized_loss(odd, X, Y, h=safe / 40, **how)


def test_large_steps_in_low_precision_are_taken() -> None:
    net = convolutional()
    out, full = (
        regularized_loss(each, X, Y, threat="linf", eps=8 / 255, h=8 / 255, autocast="keep")
        for each in (Autocast(net), net)
    )
    assert error(out.slope, full.slope) < 0.05


def test_ten_bits_are_too_few_for_a_small_step() -> None:
    net = convolutional()
    with pytest.raises(PrecisionError, match="Rounding makes up"):
        regularized_loss(TenBits(net), X, Y, lam=0.1, h=1e-4)
    out, full = (regularized_loss(each, X, Y, lam=0.1, h=0.3) for each in (TenBits(net), net))
    assert error(out.slope, full.slope) < 0.05


def test_autocast_in_compiled_code_is_noticed() -> None:
    compiled = torch.compile(Autocast(convolutional()), backend="aot_eager")
    compiled(X)
    with pytest.raises(PrecisionError, match="Rounding makes up"):
        regularized_loss(compiled, X, Y, lam=0.1)


@pytest.mark.parametrize("h", [1e-8, 1e-7, 1e-6])
@pytest.mark.parametrize("net", NETS)
def test_a_step_too_small_for_single_precision_is_refused(net: str, h: float) -> None:
    model = NETS[net]()
    with pytest.raises(PrecisionError, match=r"use h ≥ ") as caught:
        regularized_loss(model, X, Y, lam=0.1, h=h)
    safe = float(re.findall("use h ≥ ([0-9.e+-]+)", str(caught.value))[0])
    assert safe <= 1e-3
    exact = regularized_loss(copy.deepcopy(model).double(), X.double(), Y, lam=0.1, h=safe).slope
    assert error(regularized_loss(model, X, Y, lam=0.1, h=safe).slope.double(), exact) < 0.1
    # In double precision so small a step is still good.
    assert regularized_loss(copy.deepcopy(model).double(), X.double(), Y, lam=0.1, h=h).penalty > 0


def test_a_smaller_h_is_tried_again() -> None:
    model = convolutional()
    regularized_loss(model, X, Y, lam=0.1)
    with pytest.raises(PrecisionError):
        regularized_loss(model, X, Y, lam=0.1, h=1e-7)
    with pytest.raises(PrecisionError):
        regularized_loss(model, X, Y, lam=0.1, h=torch.tensor(1e-7), order=2, bn="frozen")


def trained(model: nn.Module, steps: int) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X), Y).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("steps", [0, 30, 200])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_honest_models_are_not_refused(activation: Callable[[], nn.Module], steps: int) -> None:
    """New, trained and saturated, over all usual steps: what bends is not what rounds."""
    model = trained(convolutional(activation), steps)
    strengths: list[dict[str, Any]] = [{"lam": 0.1}, {"lam": 0.1, "h": 1e-3}, {"eps": 0.1}, {"eps": 2.0}]
    for threat, how in itertools.product(("l2", "linf", "l1"), strengths):
        regularized_loss(model, X, Y, threat=threat, **how)
    for eps in (2 / 255, 8 / 255, 32 / 255):
        regularized_loss(model, X, Y, threat="linf", eps=eps)


class Noisy(nn.Module):
    """Noise that nobody else can repeat."""

    def __init__(self, noise: Callable[[torch.Size], Tensor]) -> None:
        super().__init__()
        self.net, self.noise = convolutional(), [noise]

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x + 0.3 * self.noise[0](x.shape))
        return logits


def _of_the_system(shape: torch.Size) -> Tensor:
    return torch.from_numpy(np.random.default_rng().standard_normal(tuple(shape), dtype=np.float32))


def test_a_pass_that_does_not_repeat_is_refused() -> None:
    calls = itertools.count()
    for noise in (_of_the_system, lambda shape: torch.full(shape, 0.1 * next(calls))):
        with pytest.raises(ModelError, match=r"losses differ by .* when the same images are passed again"):
            regularized_loss(Noisy(noise), X, Y, lam=0.1)


def test_noise_that_begins_later_is_noticed_later() -> None:
    steps = itertools.count()
    model = Noisy(lambda shape: _of_the_system(shape) if next(steps) > 15 else torch.zeros(shape))
    for _ in range(9):
        regularized_loss(model, X, Y, lam=0.1)
    with pytest.raises(ModelError, match="when the same images are passed again"):
        regularized_loss(model, X, Y, lam=0.1)


def test_a_model_that_is_an_ensemble_by_vmap() -> None:
    net, other = (nn.Sequential(nn.Flatten(), nn.Linear(768, 10)) for _ in range(2))
    weights, _ = torch.func.stack_module_state([net, other])

    def ensemble(x: Tensor) -> Tensor:
        each: Tensor = torch.vmap(lambda w: torch.func.functional_call(net, w, (x,)))(weights)
        return each.mean(0)

    out = regularized_loss(ensemble, X, Y, lam=0.1, h=1e-3)
    mean = nn.Sequential(nn.Flatten(), nn.Linear(768, 10))
    with torch.no_grad():
        for name, weight in mean.named_parameters():
            weight.copy_(weights[name].mean(0))
    torch.testing.assert_close(out.slope, regularized_loss(mean, X, Y, lam=0.1, h=1e-3).slope, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("net", NETS)
def test_a_wrapper_that_rounds_its_images_and_relies_on_autocast_is_named(net: str) -> None:
    wrapped = Rounding(NETS[net]())
    with pytest.raises(ModelError, match=r"rounds its images to half precision and relies on autocast"):
        regularized_loss(wrapped, X, Y, eps=0.1)
    regularized_loss(wrapped.net, X, Y, eps=0.1).loss.backward()


def test_another_error_of_a_model_with_autocast_is_its_own() -> None:
    class Broken(Autocast):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x[:, :1])

    with pytest.raises(RuntimeError, match="channels"):
        regularized_loss(Broken(convolutional()), X, Y, eps=0.1)
