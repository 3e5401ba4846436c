"""A user's mistakes, a model's misbehaviour, and faults that other libraries have had."""

import subprocess
import sys

import pytest
import torch
from attack_models import Linear, exact_distance, images, linear_model, small_network
from torch import Tensor, nn

from gradreg.attacks import attack, autoattack, carlini_wagner, fmn, logbarrier, pgd, pooled
from gradreg.errors import ConfigError, DataError, GradregWarning, ModelError

X = images(4, 20, "middle")
Y = small_network()(X).argmax(1)


class Wrapped(nn.Module):
    """A sound network whose output is changed by a function of the output and the images."""

    def __init__(self, change: object) -> None:
        super().__init__()
        self.network, self.change = small_network(), change

    def forward(self, x: Tensor) -> Tensor:
        return self.change(self.network(x), x)  # type: ignore[operator, no-any-return]


def raising(logits: Tensor, x: Tensor) -> Tensor:
    raise RuntimeError("out of cheese")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (raising, "failed on images of shape .4, 20.: out of cheese"),
        (lambda logits, x: logits * torch.nan, "not finite for 4 images"),
        (lambda logits, x: logits / torch.isin(x[:, :1], X[:, :1]).float(), "not finite for a perturbed image"),
        (lambda logits, x: logits[:, 0], r"must return logits .* for 4 images, with two or more classes; got \(4,\)"),
        (lambda logits, x: logits + torch.rand(()), "different logits when asked again"),
        (lambda logits, x: logits.softmax(1), "probabilities"),
    ],
)
def test_a_model_that_misbehaves_is_named(change: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        attack(Wrapped(change).eval(), X, Y, attacks="quick")


def test_train_mode_is_refused_and_left_alone() -> None:
    model = small_network().train()
    with pytest.raises(ModelError, match="train mode"):
        attack(model, X, Y)
    assert model.training


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"attacks": "strong"}, ConfigError, r"must be a suite \(standard, paper, quick\) or a list .*; got 'strong'"),
        ({"attacks": ["fmn", "magic"]}, ConfigError, r"must be .* or a list of attacks \(deepfool, .*; got magic"),
        ({"attacks": []}, ConfigError, r"attacks must be a suite .* or a list of attacks .*; got \[\]"),
        ({"threat": "l0"}, ConfigError, "threat must be one of linf, l2, l1, .*; got 'l0'"),
        ({"threat": "l1", "attacks": ["ddn"]}, ConfigError, "ddn supports the threats l2 only, since .*; got l1"),
        ({"eps": -0.1}, ConfigError, r"eps must be at least 0 .*; got -0\.1"),
        ({"eps": []}, ConfigError, r"eps must be one or more numbers; got \[\]"),
        ({"topk": 4}, ConfigError, r"topk must be from 1 to 3 \(the model has 4 classes\); got 4"),
        ({"batch_size": 0}, ConfigError, "batch_size must be at least 1; got 0"),
        ({"quantize": 64, "attacks": "quick"}, ConfigError, "from 1 to 16 .bits per pixel.*; got 64"),
        ({"start": X[:2]}, DataError, r"start must have the shape of x, \(4, 20\); got \(2, 20\)"),
    ],
)
def test_mistakes_in_one_sentence(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        attack(small_network(), X, Y, **arguments)  # type: ignore[arg-type]


def test_more_mistakes() -> None:
    model = small_network()
    with pytest.raises(ConfigError, match=r"pgd's options must be among steps, .*; got stepz"):
        pgd(model, X, Y, stepz=3)
    with pytest.raises(ConfigError, match=r"pgd's loss must be one of 'ce', 'margin'; got 'hinge'"):
        pgd(model, X, Y, loss="hinge")
    with pytest.raises(DataError, match=r"y must hold 4 integer labels; got torch.int64 of shape \(3,\)"):
        attack(model, X, Y[:3])
    with pytest.raises(DataError, match="outside the box"):
        attack(model, 2 * X, Y)
    with pytest.raises(DataError, match="no results"):
        pooled([])


def test_autoattack_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(ConfigError, match="pip install pyautoattack"):
        autoattack(small_network(), X, Y, eps=0.1)


@pytest.mark.slow
def test_autoattack_agrees_where_it_is_installed() -> None:
    """Nothing that it breaks may stand as robust with us."""
    pytest.importorskip("pyautoattack")
    model, x = small_network(), images(8, 20, "middle").view(8, 1, 4, 5)
    y = model(x).argmax(1)
    before = torch.get_rng_state()
    reference = autoattack(model, x, y, eps=0.05)
    assert torch.equal(before, torch.get_rng_state())
    ours = attack(model, x, y, threat="linf", eps=0.05)
    assert reference.robust(0.05).any()
    assert not reference.robust(0.05).all()
    assert not (ours.robust(0.05) & ~reference.robust(0.05)).any()


def test_masked_gradients_do_not_hide_adversarial_images() -> None:
    """A model that rounds its input has no gradient: DeepFool, FMN and APGD are blind; other winners are the alarm."""
    network = linear_model(20, classes=3)

    def rounding(x: Tensor) -> Tensor:
        return network((x * 255).round() / 255)  # type: ignore[no-any-return]

    x = images(6, 20, "middle")
    with pytest.warns(GradregWarning, match="nothing to follow"):
        result = attack(rounding, x, rounding(x).argmax(1))
    assert result.success.all()
    assert set(result.winner) <= {"square", "boundary", "logbarrier"}


# Faults of peers, as regression tests (research notes, section 0).


def test_fmn_projects() -> None:
    """foolbox 3.3.4 divides the norm by itself: 8.5 times the exact distance, however many steps."""
    model, x = linear_model(30, classes=3), images(8, 30, "middle")
    y = model(x).argmax(1)
    assert (fmn(model, x, y).distance / exact_distance(model, x, y, "l2")).max() < 1.05


def test_a_failure_is_no_black_image() -> None:
    """foolbox returns black images where C&W failed, and calls them a success if black is another class."""

    def model(x: Tensor) -> Tensor:
        bright = x.amax(1, keepdim=True)
        # Flat, but for an isolated other class at black.
        return torch.cat([bright * 0 + (bright > 0.01).float() - 0.5, bright * 0], 1)

    with pytest.warns(GradregWarning, match="nothing to follow"):
        result = carlini_wagner(model, X, torch.zeros(4, dtype=torch.long), steps=20, rounds=2)
    assert (result.distance == torch.inf).all()
    assert torch.equal(result.adversarial, X)
    assert not result.success.any()


def test_negative_logits_are_attacked() -> None:
    """torchattacks masks by multiplication, so that its C&W fails when all logits are negative."""
    model = linear_model(20, classes=4)
    shifted = Linear(model.weight.detach(), model.bias.detach() - 100).eval()
    y = model(X).argmax(1)
    assert carlini_wagner(shifted, X, y).success.all()


def test_clean_images_are_no_wins() -> None:
    """secml-torch's ensemble and adv-lib count the clean image of a failed attack as a distance of 0."""
    impossible = Linear(torch.zeros(2, 20), torch.tensor([3.0, 1.0])).eval()
    y = torch.zeros(4, dtype=torch.long)
    with pytest.warns(GradregWarning, match="nothing to follow"):
        result = pooled([attack(impossible, X, y, attacks=[name]) for name in ("fmn", "pgd", "logbarrier")])
    assert (result.distance == torch.inf).all()
    assert result.robust_accuracy(0.5) == 1


# LogBarrier's listed failures (authors.md, 5.4).


def test_logbarrier_keeps_to_the_box_and_to_its_start() -> None:
    """Starts were not clipped to the box, and one given by the user was ignored."""
    model, x = small_network(), images(6, 20, "walls")
    y = model(x).argmax(1)
    start = fmn(model, x, y)
    result = logbarrier(model, x, y, start=start.adversarial, outer=1, inner=2)
    assert (result.distance <= start.distance * (1 + 1e-5)).all()
    assert result.adversarial.min() >= 0
    assert result.adversarial.max() <= 1
    # The clean image, its repetition, the start, two steps, the verification, and the clean image with a gradient.
    assert result.forwards.max() == 2 + 1 + 2 + 1 + 1


def test_logbarrier_survives_ties() -> None:
    """Logits behind a rectifier tie exactly on a whole region: log 0 made every iterate NaN, and noise was returned."""

    class Tied(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([torch.relu(0.5 - x[:, 0]), torch.relu(x[:, 0] - 0.7)], 1)

    x = torch.full((3, 5), 0.1)
    result = logbarrier(Tied().eval(), x, torch.zeros(3, dtype=torch.long))
    # From 0.5 on the label is not strictly ahead.
    assert (result.distance >= 0.4).all()
    assert (result.distance < 0.401).all()
    assert (result.distance <= 0.6 * 1.02).all()


def test_logbarrier_has_a_topk_barrier() -> None:
    """The barrier must stand at the top-k boundary: the distance is that of the k-th rival."""
    weight = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    model = Linear(weight, torch.tensor([1.5, 1.0, 1.0])).eval()
    x = torch.tensor([[0.3, 0.2]])
    result = logbarrier(model, x, torch.tensor([0]), topk=2)
    exact = (0.2**2 + 0.3**2) ** 0.5
    assert exact * (1 - 1e-5) <= result.distance[0] <= 1.02 * exact


@pytest.mark.parametrize("inner", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_logbarrier_against_the_published_algorithm(inner: int) -> None:
    """No larger distance than the algorithm of authors.md 5.1, at a tenth of its forwards; 500 is what it says."""
    model, x = small_network(), images(12, 20, "middle")
    y = model(x).argmax(1)
    reference, forwards = _published(model, x, y, inner)
    ours = logbarrier(model, x, y)
    assert ours.distance.median() <= 1.001 * reference.median()
    assert (ours.distance / reference).quantile(0.9) <= 1.02
    assert ours.forwards.max() <= forwards / 10


def _published(model: nn.Module, x: Tensor, y: Tensor, inner: int) -> tuple[Tensor, int]:
    """dt 0.01, α 0.1·0.75^k, 15 outer steps of `inner` ones, halving back; a start in the box."""
    generator = torch.Generator().manual_seed(0)
    z, sigma, forwards = x.clone(), 0.01, 0
    while bool((wrong := model(z).argmax(1) == y).any()):
        noise = (x + sigma * torch.randn(x.shape, generator=generator)).clamp(0, 1)
        z, sigma, forwards = torch.where(wrong[:, None], noise, z), sigma * 1.01, forwards + 1
    best = (z - x).norm(dim=1)
    for outer in range(15):
        for _ in range(inner):
            z.requires_grad_()
            p = model(z).softmax(1)
            loss = -(0.1 * 0.75**outer) * (p.amax(1) - p.gather(1, y[:, None])[:, 0]).log()
            (gradient,) = torch.autograd.grad(loss.sum(), z)
            old = z.detach()
            z = (old - 0.01 * (old - x + gradient)).clamp(0, 1)
            forwards += 1
            while bool((wrong := model(z).argmax(1) == y).any()):
                z, forwards = torch.where(wrong[:, None], (z + old) / 2, z), forwards + 1
            best = torch.minimum(best, (z - x).norm(dim=1))
    return best, forwards + 15 * inner


@pytest.mark.parametrize("first", ["attacks.fmn", "attacks.suite", "diagnosis.contests"])
def test_an_attack_is_the_function_and_not_its_module_whatever_was_imported(first: str) -> None:
    code = f"import gradreg.{first}\nfrom gradreg import attacks\nprint(*(getattr(attacks, n) for n in dir(attacks)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "<attack fmn(" in done.stdout
    assert "<module" not in done.stdout
