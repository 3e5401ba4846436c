"""Randomised models averaged over fixed draws: against averages that are known, and asked again under fresh ones."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from gradreg import GradregError
from gradreg.attacks.fresh import fresh_answers
from gradreg.fingerprints import image_keys
from gradreg.models import Averaged
from gradreg.models.randomised import fresh_draws

SIGMA = 0.5


class Noisy(nn.Module):
    """A linear model that adds noise of some origin to every image."""

    def __init__(self, origin: str = "torch") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.origin = nn.Linear(12, 3).eval(), origin
        self.own, self.numbers = torch.Generator(), np.random.default_rng(0)

    def noise(self, x: Tensor) -> Tensor:
        draws: dict[str, Callable[[], Tensor]] = {
            "torch": lambda: torch.randn_like(x),
            "numpy": lambda: torch.from_numpy(np.random.standard_normal(x.shape)).to(x),
            "python": lambda: torch.full_like(x, random.gauss(0, 1)),
            "its own": lambda: torch.randn(x.shape, generator=self.own).to(x),
            "its own of numpy": lambda: torch.from_numpy(self.numbers.standard_normal(x.shape)).to(x),
        }
        return draws[self.origin]()

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        found: Tensor = self.layer(x + SIGMA * self.noise(x))
        return found


ORIGINS = ["torch", "numpy", "python", "its own", "its own of numpy"]


@pytest.fixture
def x() -> Tensor:
    return torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("origin", ORIGINS)
def test_answers_depend_on_the_image_alone(origin: str, x: Tensor) -> None:
    model = Averaged(Noisy(origin).eval(), draws=5)
    whole = model(x)
    assert torch.equal(model(x), whole)
    assert torch.equal(torch.cat([model(part) for part in x.split(2)]), whole)
    assert torch.equal(model(x.flip(0)), whole.flip(0))
    other = Averaged(model.model, draws=5, seed=1)(x)
    assert not torch.equal(other, whole)
    with fresh_draws(model, image=7):
        fresh = model(x)
        assert not torch.equal(fresh, whole)
    with fresh_draws(model, image=8):
        assert not torch.equal(model(x), fresh), "other images have other draws"
    assert torch.equal(model(x), whole)


@pytest.mark.parametrize("origin", ORIGINS)
def test_no_stream_of_the_caller_moves(origin: str, x: Tensor) -> None:
    noisy = Noisy(origin).eval()
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    before = torch.get_rng_state(), random.getstate(), repr(np.random.get_state()), noisy.own.get_state()
    Averaged(noisy, draws=3)(x)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert repr(np.random.get_state()) == before[2]
    assert torch.equal(noisy.own.get_state(), before[3])


def test_mean_logits_of_a_linear_model_are_those_of_the_mean_noise(x: Tensor) -> None:
    """E over the draws: W(x + σ·mean noise) + b, the same offset for every image, and W x + b for many draws."""
    noisy = Noisy().eval()
    exact = noisy.layer(x.flatten(1))
    few = Averaged(noisy, draws=7, of="logits")(x) - exact
    assert_close(few, few[:1].expand_as(few), rtol=1e-4, atol=1e-5)
    many = Averaged(noisy, draws=2000, of="logits")(x[:1])
    spread = SIGMA * noisy.layer.weight.norm(dim=1) / 2000**0.5
    assert ((many - exact[:1]).abs() < 4 * spread).all()


def test_the_softmax_is_the_mean_probability(x: Tensor) -> None:
    model = Averaged(Noisy().eval(), draws=4)
    single = []
    for draw in range(4):
        with fresh_draws(model, image=7, single=draw):
            single.append(model(x).softmax(1))
    assert not torch.equal(single[0], single[1])
    with fresh_draws(model, image=7):
        assert_close(model(x).softmax(1), torch.stack(single).mean(0))


def test_no_images_have_no_answers(x: Tensor) -> None:
    assert Averaged(Noisy().eval(), draws=4)(x[:0]).shape == (0, 3)


def test_a_compiler_leaves_the_average_as_it_is(x: Tensor) -> None:
    """NumPy's and Python's streams cannot be traced; what is around the average and inside of it can be compiled."""
    model = Averaged(Noisy("numpy").eval(), draws=3)
    around = nn.Sequential(nn.Identity(), model)
    with torch.no_grad():
        assert torch.equal(torch.compile(around, backend="eager")(x), model(x))


def test_an_attack_says_what_holds_under_fresh_draws(x: Tensor) -> None:
    model = Averaged(Noisy().eval(), draws=5)
    y = model(x).argmax(1)
    found = gradreg.attack(model, x, y, threat="l2", attacks="quick")
    assert found.fresh is not None
    assert found.fresh.dtype == torch.bool
    assert found.fresh_share is not None
    for row, key in enumerate(image_keys(x).tolist()):
        with fresh_draws(model, key), torch.no_grad():
            wrong = gradreg.losses.misclassified(model(found.adversarial[row : row + 1]), y[row : row + 1])
        assert bool(found.fresh[row]) == bool(wrong)
    assert f"{int(found.fresh.sum())} of 6 adversarial images misclassified" in str(found)
    assert {"fresh", "fresh_share"} <= found.to_dict()["images"][0].keys()
    flipped = fresh_answers(model, x.flip(0), y.flip(0), found.adversarial.flip(0), 1)
    assert flipped is not None
    assert torch.equal(flipped.share.flip(0), found.fresh_share), "draws belong to the image"
    assert found.select(torch.tensor([1])).fresh is not None
    direct = gradreg.attacks.fmn(model, x, y, threat="l2")
    assert direct.fresh is not None
    assert gradreg.attack(Noisy().eval().layer, x.flatten(1), y, threat="l2", attacks="quick").fresh is None


def test_a_linear_model_s_distance_is_known(x: Tensor) -> None:
    """With mean logits the draws move the hyperplanes by a known offset, so the distance has a closed form."""
    noisy = Noisy().eval()
    model = Averaged(noisy, draws=5, of="logits")
    logits = model(x)
    y = logits.argmax(1)
    weight = noisy.layer.weight
    gaps = (logits.gather(1, y[:, None]) - logits) / (weight[y][:, None] - weight).norm(dim=2).clamp(min=1e-12)
    exact = gaps.scatter(1, y[:, None], torch.inf).amin(1).detach()
    classifier = gradreg.Classifier(model, box=(-10.0, 10.0))
    assert_close(gradreg.attack(classifier, x, y, threat="l2", attacks="quick").distance, exact, rtol=1e-2, atol=1e-4)


def test_an_evaluation_and_its_report_say_both(x: Tensor, tmp_path: Path) -> None:
    model = Averaged(Noisy().eval(), draws=3)
    y = model(x).argmax(1)
    found = gradreg.evaluate(model, (x, y), threat="l2", attacks="quick", folder=tmp_path / "evaluation")
    (note,) = [each for each in found.notes if "fresh draws" in each]
    assert "adversarial images are misclassified under fresh draws too; robust accuracy counts them all" in note
    gradreg.report([tmp_path / "evaluation"], tmp_path / "page.html")
    assert "under fresh draws too" in (tmp_path / "page.html").read_text()
    regularity = gradreg.estimate_regularity(model, (x, y), threat="l2", method="local")
    assert gradreg.bounds(model, x, y, regularity).lipschitz.ge(0).all()
    assert len(gradreg.certify(model, x[:2], sigma=0.25, n=100).radius) == 2


def test_work_is_not_resumed_with_another_function(x: Tensor, tmp_path: Path) -> None:
    """Weights that only a function refers to are in no state_dict, so its answers tell it apart."""

    def around(seed: int, sigma: float = 0.1) -> Averaged:
        torch.manual_seed(seed)
        layer = nn.Linear(12, 3)
        return Averaged(lambda z: layer(z.flatten(1) + sigma * torch.randn(len(z), 12)), draws=2)

    keys = {gradreg.Classifier.of(around(*each)).fingerprint(x) for each in ((0,), (1,), (0, 0.5))}
    assert len(keys) == 3
    assert gradreg.Classifier.of(around(0)).fingerprint(x) == gradreg.Classifier.of(around(0)).fingerprint(x)
    y = torch.zeros(6, dtype=torch.int64)
    gradreg.attack(around(0), x, y, threat="l2", attacks="quick", resume=tmp_path / "pool")
    with pytest.raises(GradregError, match="other weights"):
        gradreg.attack(around(1), x, y, threat="l2", attacks="quick", resume=tmp_path / "pool")


def test_what_is_refused(x: Tensor) -> None:
    with pytest.raises(GradregError, match="draws must be from 1 to 1000000; got 0"):
        Averaged(Noisy(), draws=0)
    with pytest.raises(GradregError, match="of must be"):
        Averaged(Noisy(), of="votes")  # type: ignore[arg-type]
    with pytest.raises(GradregError, match=r"model must be an nn.Module or a function"):
        Averaged(3)  # type: ignore[arg-type]
    with pytest.raises(GradregError, match="must return logits"):
        Averaged(lambda x: (x, x))(x)


def with_dropout() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 30), nn.Dropout(0.5), nn.Linear(30, 3))


def test_dropout_that_eval_mode_switched_off_is_not_taken_for_randomness(x: Tensor) -> None:
    model = with_dropout().eval()
    with pytest.raises(GradregError, match="eval mode switched its dropout off"):
        Averaged(model, draws=3)(x)
    # The way out that the sentence names, against the mean by hand.
    model[2].train()
    averaged = Averaged(lambda images: model(images), draws=3)
    assert (averaged(x) - Averaged(lambda images: model(images), draws=3, seed=1)(x)).abs().max() > 1e-3
    result = gradreg.attack(averaged, x, averaged(x).argmax(1), attacks=["deepfool"])
    assert result.fresh is not None
    # Of a model without dropout equal draws are no sign of a mistake, nor is a single draw.
    assert_close(Averaged(model[1].eval(), draws=2, of="logits")(x.flatten(1)), model[1](x.flatten(1)))
    Averaged(model.eval(), draws=1)(x)


def test_functions_of_an_averaged_model_are_asked_under_fresh_draws_too(x: Tensor) -> None:
    averaged = Averaged(Noisy(), draws=3)
    y = averaged(x).argmax(1)
    direct = gradreg.attack(averaged.eval(), x, y, attacks=["deepfool"])
    through = gradreg.attack(lambda images: averaged(images), x, y, attacks=["deepfool"])
    assert direct.fresh is not None
    assert through.fresh is not None
    assert torch.equal(direct.fresh, through.fresh)


def test_the_error_about_a_randomised_model_names_the_average(x: Tensor) -> None:
    with pytest.raises(GradregError, match=r"use gradreg\.Averaged\(model, draws=20\)"):
        gradreg.attack(Noisy().eval(), x, torch.zeros(len(x), dtype=torch.int64))
