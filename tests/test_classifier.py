"""One face for every model: what goes in, what comes out, what is refused and what is counted."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg import Classifier, ConfigError, DataError, ModelError
from gradreg.losses import cross_entropy


def linear() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    return torch.rand(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])


def test_normalisation_happens_inside(batch: tuple[Tensor, Tensor]) -> None:
    model, (x, y) = linear(), batch
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    classifier = Classifier(model, mean=mean, std=std)
    outside = (x - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    assert_close(classifier(x), model(outside))
    _, gradient = classifier.loss_and_gradient(x, y, cross_entropy)
    leaf = outside.requires_grad_()
    (inner,) = torch.autograd.grad(cross_entropy(model(leaf), y).sum(), leaf)
    assert_close(gradient, inner / torch.tensor(std).view(1, 3, 1, 1))


def test_gradients_are_per_image_and_leave_the_weights_alone(batch: tuple[Tensor, Tensor]) -> None:
    model, (x, y) = linear(), batch
    losses, gradient = Classifier(model).loss_and_gradient(x, y, cross_entropy)
    _, alone = Classifier(model).loss_and_gradient(x[2:3], y[2:3], cross_entropy)
    assert_close(gradient[2:3], alone)
    assert not losses.requires_grad
    assert all(p.grad is None for p in model.parameters())


def test_dtype_is_the_models(batch: tuple[Tensor, Tensor]) -> None:
    assert Classifier(linear().double())(batch[0]).dtype == torch.float64
    assert Classifier(lambda x: x.flatten(1))(batch[0]).dtype == torch.float32


def test_device_must_be_the_models(batch: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ModelError, match="device, cpu; got meta"):
        Classifier(linear())(batch[0].to("meta"))


def test_a_classifier_is_not_wrapped_twice() -> None:
    classifier = Classifier(linear(), box=(-1, 1))
    assert Classifier.of(classifier) is classifier


def test_counts_are_each_images_own(batch: tuple[Tensor, Tensor]) -> None:
    classifier, (x, y) = Classifier(linear()), batch
    with classifier.counted(4) as queries:
        classifier(x)
        some = torch.tensor([3, 1])
        classifier.loss_and_gradient(x[some], y[some], cross_entropy, some)
        classifier(x[:1].expand(3, -1, -1, -1), torch.tensor([0, 0, 0]))
        classifier.check(x, y)
    classifier(x)
    assert queries.forwards.tolist() == [4, 2, 1, 2]
    assert queries.backwards.tolist() == [0, 1, 0, 1]


def test_counts_need_to_know_whose_rows_they_are(batch: tuple[Tensor, Tensor]) -> None:
    classifier = Classifier(linear())
    with classifier.counted(5), pytest.raises(ConfigError, match="the image of each row"):
        classifier(batch[0])


def test_check_returns_the_clean_logits(batch: tuple[Tensor, Tensor]) -> None:
    model = linear()
    assert_close(Classifier(model).check(*batch), model(batch[0]).detach())


def test_train_mode_is_refused_and_not_changed(batch: tuple[Tensor, Tensor]) -> None:
    model = nn.Sequential(linear(), nn.Dropout())
    with pytest.raises(ModelError, match=r"train mode.*model\.eval\(\)"):
        Classifier(model).check(*batch)
    assert model[1].training


def test_probabilities_are_recognised_and_refused(batch: tuple[Tensor, Tensor]) -> None:
    model = nn.Sequential(linear(), nn.Softmax(1)).eval()
    with pytest.raises(ModelError, match=r"probabilities.*return the logits"):
        Classifier(model).check(*batch)
    half = nn.Sequential(linear(), nn.Softmax(1)).eval().bfloat16()
    with pytest.raises(ModelError, match="probabilities"):
        Classifier(half).check(*batch)
    # Positive logits that nearly sum to 1 are still logits.
    Classifier(lambda x: torch.tensor([[0.5, 0.3, 0.2001]]).expand(len(x), 3)).check(*batch)
    # Log-probabilities differ from logits by a constant a row, so they are logits.
    Classifier(nn.Sequential(linear(), nn.LogSoftmax(1)).eval()).check(*batch)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: x, r"for 4 images, with two or more classes; got \(4, 3, 2, 2\)"),
        (lambda x: x.flatten(1)[:2], r"for 4 images, with two or more classes; got \(2, 12\)"),
        (lambda x: x.flatten(1)[:, :1], "two or more classes; got"),
        (lambda x: {"logits": x}, r"two or more classes; got \(4, 3, 2, 2\): pass output="),
        (lambda x: {"scores": x}, "two or more classes; got dict: pass output="),
        (lambda x: x.flatten(1) / 0, "not finite for 4 images; the first is image 0"),
    ],
)
def test_wrong_outputs_are_refused(model: object, message: str, batch: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ModelError, match=message):
        Classifier(model).check(*batch)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (2 * torch.ones(2, 3, 2, 2), torch.tensor([0, 1]), "outside the box 0 to 1: pass unnormalised"),
        (torch.full((2, 3, 2, 2), torch.nan), torch.tensor([0, 1]), "x must hold finite pixels; got NaN or inf"),
        (torch.full((2, 3, 2, 2), 200.0), torch.tensor([0, 1]), "outside the box 0 to 1: divide them by 255"),
        (torch.zeros(2, 3, 2, 2, dtype=torch.uint8), torch.tensor([0, 1]), "x must be a float batch"),
        (torch.zeros(2, 3, 2, 2), torch.tensor([0.0, 1.0]), "2 integer labels"),
        (torch.zeros(2, 3, 2, 2), torch.tensor([0]), "2 integer labels"),
        (
            torch.zeros(2, 3, 2, 2),
            torch.tensor([0, 3]),
            "y must hold labels from 0 to 2, the model's classes; got 0 to 3",
        ),
    ],
)
def test_wrong_images_and_labels_are_refused(x: Tensor, y: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Classifier(linear()).check(x, y)


def test_wrong_construction_is_refused() -> None:
    with pytest.raises(ModelError, match=r"model must be an nn\.Module .*; got str"):
        Classifier("resnet50")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="both mean= and std="):
        Classifier(linear(), mean=(0.5,))
    with pytest.raises(ConfigError, match="smallest and the largest"):
        Classifier(linear(), box=(1, 0))
