"""What a model returns: read where it can be, refused in the same sentence everywhere else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradreg
from gradreg import Classifier, ModelError
from gradreg.objectives import OBJECTIVES


@dataclass
class ImageClassifierOutput:
    """As of a Hugging Face classifier."""

    logits: Tensor | None
    loss: Tensor | None = None


class Returns(nn.Module):
    """A linear model that hands its logits out in some form."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.flat, self.layer, self.form = nn.Flatten(), nn.Linear(48, 4), form

    def forward(self, x: Tensor) -> Any:
        return self.form(self.layer(self.flat(x)))


def twins(form: Any) -> tuple[Returns, nn.Sequential]:
    odd = Returns(form).eval()
    return odd, nn.Sequential(odd.flat, odd.layer).eval()


@pytest.fixture
def x() -> Tensor:
    return 0.3 + 0.4 * torch.rand(24, 3, 4, 4)


READ: dict[str, Callable[[Tensor], Any]] = {
    "object": ImageClassifierOutput,
    "mapping": lambda z: {"logits": z, "features": None},
    "tensor": lambda z: z,
}


@pytest.mark.parametrize("form", READ)
def test_every_function_reads_the_usual_outputs(form: str, x: Tensor) -> None:
    odd, plain = twins(READ[form])
    y = plain(x).argmax(1)
    out, expected = (gradreg.regularized_loss(each, x, y, lam=0.1) for each in (odd, plain))
    assert torch.equal(out.loss, expected.loss)
    found, nearest = (gradreg.attack(each, x, y, attacks="quick") for each in (odd, plain))
    assert torch.equal(found.distance, nearest.distance)
    pair = [gradreg.estimate_regularity(each, (x, y), method="local") for each in (odd, plain)]
    assert torch.equal(pair[0].omega, pair[1].omega)
    assert torch.equal(gradreg.bounds(odd, x, y, pair[0]).lipschitz, gradreg.bounds(plain, x, y, pair[1]).lipschitz)
    certificates = [gradreg.certify(each, x[:4], sigma=0.25, n=500) for each in (odd, plain)]
    assert torch.equal(certificates[0].radius, certificates[1].radius)
    flags = [[flag.severity for flag in gradreg.diagnose(each, x, y)] for each in (odd, plain)]
    assert flags[0] == flags[1]


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "tuple": (lambda z: (z, z), "got tuple"),
    "None": (lambda z: None, "got NoneType"),
    "no head": (lambda z: ImageClassifierOutput(None), "got ImageClassifierOutput"),
    "one logit": (lambda z: z[:, :1], r"got \(\d+, 1\)"),
    "no batch": (lambda z: z[0], r"got \(4,\)"),
    "list": (lambda z: z.tolist(), "got list"),
}
CALLS: dict[str, Callable[..., object]] = {
    "regularized_loss": lambda model, x, y: gradreg.regularized_loss(model, x, y, lam=0.1),
    "attack": lambda model, x, y: gradreg.attack(model, x, y, attacks="quick"),
    "estimate_regularity": lambda model, x, y: gradreg.estimate_regularity(model, (x, y), method="local"),
    "certify": lambda model, x, y: gradreg.certify(model, x, sigma=0.25, n=500),
    "diagnose": lambda model, x, y: gradreg.diagnose(model, x, y),
    "evaluate": lambda model, x, y: gradreg.evaluate(model, (x, y), attacks="quick", regularity="local"),
    "inspect_image": lambda model, x, y: gradreg.inspect_image(model, x[0]),
    "GradientPenalty": lambda model, x, y: gradreg.GradientPenalty(lam=0.1)(model, x, y),
    "fit": lambda model, x, y: gradreg.fit(model, ([(x, y)], [(x, y)]), epochs=1),
    "fit with a penalty": lambda model, x, y: gradreg.fit(
        model, ([(x, y)], [(x, y)]), {"name": "gradient", "lam": 0.1}, epochs=1
    ),
}


@pytest.mark.parametrize("form", REFUSED)
@pytest.mark.parametrize("call", CALLS)
def test_any_other_output_is_one_sentence_that_names_the_way_out(call: str, form: str, x: Tensor) -> None:
    odd, (_, got) = Returns(REFUSED[form][0]).eval(), REFUSED[form]
    sentence = rf"^The model must return logits of shape .* with two or more classes; {got}: pass output=, a function"
    with pytest.raises(ModelError, match=sentence):
        CALLS[call](odd, x, torch.zeros(24, dtype=torch.int64))


def test_output_names_the_logits(x: Tensor) -> None:
    odd, plain = twins(lambda z: (z.sum(), z))
    y = plain(x).argmax(1)
    loss = gradreg.regularized_loss(odd, x, y, lam=0.1, output=lambda pair: pair[1]).loss
    assert torch.equal(loss, gradreg.regularized_loss(plain, x, y, lam=0.1).loss)
    found = gradreg.attack(Classifier(odd, output=lambda pair: pair[1]), x, y, attacks="quick")
    assert torch.equal(found.distance, gradreg.attack(plain, x, y, attacks="quick").distance)
    one = Returns(lambda z: z[:, :1]).eval()
    both = Classifier(one, output=lambda z: torch.cat([-z, z], 1))
    assert gradreg.attack(both, x, both(x).argmax(1), attacks="quick").distance.isfinite().all()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("form", [*READ, "tuple"])
def test_training_reads_what_a_model_returns(objective: str, form: str, x: Tensor) -> None:
    """Each objective gives the weights that it gives where the model returns a tensor."""
    trained = []
    for shape in (READ.get(form, lambda z: (z.sum(), z)), READ["tensor"]):
        torch.manual_seed(0)
        model, y = Returns(shape), torch.arange(24) % 4
        options: dict[str, Any] = {"output": lambda pair: pair[1]} if isinstance(model(x), tuple) else {}
        settings = {"name": objective} | ({"lam": 0.1} if objective == "gradient" else {})
        gradreg.fit(model, ([(x, y)], [(x, y)]), settings, epochs=2, batch_size=24, **options)
        trained.append(model.layer.weight.detach().clone())
    assert torch.equal(*trained)


def test_a_wrong_output_function_is_one_sentence(x: Tensor) -> None:
    odd, _ = twins(lambda z: (z.sum(), z))
    with pytest.raises(ModelError, match="output= failed on what the model returned, a tuple: 'tuple' object has no"):
        Classifier(odd, output=lambda pair: pair.scores)(x)
    with pytest.raises(ModelError, match="got str: pass output="):
        Classifier(odd, output=lambda pair: "logits")(x)  # type: ignore[arg-type, return-value]
    with pytest.raises(gradreg.ConfigError, match=r"output must be a function .*; got str"):
        Classifier(odd, output="logits")  # type: ignore[arg-type]


def test_a_criterion_of_ones_own_may_take_a_single_logit(x: Tensor) -> None:
    one, target = Returns(lambda z: z[:, :1]), torch.rand(24, 1)
    criterion = nn.BCEWithLogitsLoss(reduction="none")
    out = gradreg.regularized_loss(one, x, target, lam=0.1, criterion=lambda z, y: criterion(z, y).squeeze(1))
    assert out.penalty > 0


@pytest.mark.parametrize("way", ["decorated", "detached"])
def test_logits_without_a_gradient_are_one_sentence(way: str, x: Tensor) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 4)).eval()
    model: Any = torch.no_grad()(net.forward) if way == "decorated" else lambda x: net(x).detach()
    y = net(x).argmax(1)
    for call in ("regularized_loss", "attack", "estimate_regularity"):
        with pytest.raises(ModelError, match=r"does not depend on the images through autograd: remove .*no_grad\(\)"):
            CALLS[call](model, x, y)
    # Certificates need no gradient, and a diagnosis says that there is none.
    assert (gradreg.certify(model, x[:4], sigma=0.25, n=500).prediction >= -1).all()
    flags = gradreg.diagnose(model, x, y)
    assert next(flag for flag in flags if flag.code == "zero-gradient-margin").severity == "error"
