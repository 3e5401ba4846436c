"""Models for which the images of a batch see each other, and classifiers that are moved or cast later."""

import pytest
import torch
from torch import Tensor, nn

import gradreg
from gradreg import Classifier, ModelError


def mixing() -> nn.Sequential:
    """Batch statistics in eval mode: the answer about an image depends on its neighbours."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.GELU(), nn.Flatten(), nn.Linear(16, 3)
    ).eval()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(16, 3, 4, 4)


def test_a_model_that_mixes_images_is_refused(x: Tensor) -> None:
    model = mixing()
    y = model(x).argmax(1)
    sentence = "logits for an image depend on the other images of the batch"
    with pytest.raises(ModelError, match=sentence):
        gradreg.attack(model, x, y, attacks="quick")
    with pytest.raises(ModelError, match=sentence):
        gradreg.certify(model, x, sigma=0.25, n=500)
    with pytest.raises(ModelError, match=sentence):
        gradreg.certify(model, x[:1], sigma=0.25, n=500)
    with pytest.raises(ModelError, match=sentence):
        gradreg.estimate_regularity(model, (x, y), method="local")
    apart = nn.Sequential(nn.Flatten(), nn.Linear(48, 3)).eval()
    regularity = gradreg.estimate_regularity(apart, (x, y), method="local")
    with pytest.raises(ModelError, match=sentence):
        gradreg.bounds(model, x, y, regularity)
    with pytest.raises(ModelError, match=sentence):
        gradreg.evaluate(model, (x, y), attacks="quick", regularity="local")
    with pytest.raises(ModelError, match=sentence):
        gradreg.inspect_image(model, x[0])


@pytest.mark.parametrize("images", [16, 17])
def test_a_diagnosis_flags_it(images: int) -> None:
    """One image more than a batch: alone, it cannot even be normalised."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.BatchNorm1d(8, track_running_stats=False)).eval()
    x = torch.rand(images, 3, 4, 4)
    flags = {flag.code: flag for flag in gradreg.diagnose(model, x, model(x).argmax(1), batch_size=16)}
    assert flags["batch-dependent"].severity == "error"
    assert flags["batch-dependent"].evidence["value"] > 0.01  # type: ignore[operator]
    assert "depends on the rest of the batch" in flags["left-out"].finding
    assert gradreg.verdict(flags.values()).word == "broken"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_models_that_keep_images_apart_are_not_flagged(dtype: torch.dtype, x: Tensor) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(16, 3))
    model = model.to(dtype).eval()
    y = Classifier(model)(x).argmax(1)
    assert gradreg.attack(model, x, y, attacks="quick").success.any()
    flags = {flag.code: flag for flag in gradreg.diagnose(model, x, y)}
    assert flags["batch-dependent"].severity == "info"


def test_a_classifier_takes_its_statistics_along(x: Tensor) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    reference = Classifier(net, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1))(x)
    for move in (nn.Module.double, nn.Module.float, nn.Module.bfloat16):
        whole = move(Classifier(net, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1)))
        logits = whole(x)
        assert logits.dtype == net[1].weight.dtype == next(whole.buffers()).dtype
        torch.testing.assert_close(logits.float(), reference, rtol=0.05, atol=0.05)
        assert list(whole.state_dict()) == ["model.1.weight", "model.1.bias"]
    # The model alone was moved: its classifier follows.
    followed = Classifier(net.float(), mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1))
    net.double()
    assert followed(x).dtype == torch.float64
    there = Classifier(nn.Sequential(nn.Flatten(), nn.Linear(48, 4)), mean=(0.5,) * 3, std=(1.0,) * 3).to("meta")
    assert there.device == torch.device("meta")
    assert there(x.to("meta")).shape == (16, 4)
    with pytest.raises(ModelError, match="x must be on the model's device, meta; got cpu"):
        there(x)
