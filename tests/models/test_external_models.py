"""Models from elsewhere, with stand-ins for the libraries: no test needs timm or torchvision."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from gradreg.errors import ModelError
from gradreg.models import build
from gradreg.models.activations import C2ReLU

TIMM_MEAN, TIMM_STD = (0.1, 0.2, 0.3), (0.5, 0.25, 0.125)


class Stand(nn.Module):
    """A library's model: a ReLU used twice under two names, and a record of the pixels it was shown."""

    def __init__(self, in_chans: int = 3, num_classes: int = 10) -> None:
        super().__init__()
        self.pretrained_cfg = {"mean": TIMM_MEAN, "std": TIMM_STD}
        self.head = nn.Linear(in_chans, num_classes)
        self.act = nn.ReLU()
        self.inner = nn.Sequential(self.act)
        self.shown = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        self.shown = x
        logits: Tensor = self.inner(self.act(self.head(x.mean((2, 3)))))
        return logits


def create(name: str, **options: Any) -> nn.Module:
    if name == "plain":
        return nn.Flatten()
    if name != "resnet18":
        raise RuntimeError(f"Unknown model ({name})")
    return Stand(**options)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(create_model=create, get_model=create, list_models=lambda: ["plain", "resnet18"])
    monkeypatch.setitem(sys.modules, "timm", fake)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=fake))


def message_of(name: str, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        build(name, classes=4, **options)
    return str(caught.value)


def shown(model: nn.Module, pixels: Tensor) -> Tensor:
    model(pixels)
    stand = model.get_submodule("model")
    assert isinstance(stand, Stand)
    return stand.shown


@pytest.mark.usefixtures("libraries")
def test_timm_model_is_shown_pixels_normalised_by_its_own_configuration() -> None:
    pixels = torch.rand(2, 3, 5, 5)
    model = build("timm:resnet18", classes=4)
    expected = (pixels - torch.tensor(TIMM_MEAN).view(3, 1, 1)) / torch.tensor(TIMM_STD).view(3, 1, 1)
    assert_close(shown(model, pixels), expected)
    assert model(pixels).shape == (2, 4)


@pytest.mark.usefixtures("libraries")
def test_torchvision_model_is_shown_pixels_normalised_by_imagenet() -> None:
    pixels = torch.rand(2, 3, 5, 5)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = (pixels - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    assert_close(shown(build("torchvision:resnet18", classes=4), pixels), expected)


@pytest.mark.usefixtures("libraries")
def test_grey_images_take_the_average_of_the_statistics() -> None:
    pixels = torch.rand(2, 1, 5, 5)
    assert_close(shown(build("timm:resnet18", classes=4, channels=1), pixels), (pixels - 0.2) / (0.875 / 3))


@pytest.mark.usefixtures("libraries")
def test_activation_replaces_every_relu_even_a_shared_one() -> None:
    model = build("timm:resnet18", classes=4, activation="c2relu")
    assert not any(isinstance(m, nn.ReLU) for m in model.modules())
    places = [m for _, m in model.named_modules(remove_duplicate=False) if isinstance(m, C2ReLU)]
    assert len(places) == 2
    assert places[0] is places[1]


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_statistics_that_are_given_take_the_place_of_the_library_s(library: str) -> None:
    pixels = torch.rand(2, 3, 5, 5)
    model = build(f"{library}:resnet18", classes=4, mean=[0.5] * 3, std=[0.25] * 3)
    assert_close(shown(model, pixels), (pixels - 0.5) / 0.25)
    assert "std is missing" in message_of(f"{library}:resnet18", mean=0.5)


@pytest.mark.usefixtures("libraries")
def test_what_a_library_objects_to_is_one_sentence() -> None:
    assert message_of("timm:resnet19") == (
        "Model 'resnet19' could not be built by timm (did you mean 'resnet18'?): Unknown model (resnet19)."
    )
    wrong = message_of("torchvision:resnet18", depth=3)
    assert wrong.startswith("Model 'resnet18' could not be built by torchvision: ")
    assert "unexpected keyword argument 'depth'" in wrong


@pytest.mark.usefixtures("libraries")
def test_nothing_to_replace() -> None:
    expected = "The model has no activation layer with a kink for 'gelu' to replace: leave it out"
    assert message_of("timm:plain", activation="gelu").startswith(expected)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_library_that_is_not_installed(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    expected = f"The package {library} is not installed: run pip install 'gradreg[{library}]'."
    assert message_of(f"{library}:resnet18") == expected


@pytest.mark.parametrize(("library", "packages"), [("timm", "timm and torchvision"), ("torchvision", "torchvision")])
def test_library_built_for_another_torch(
    library: str, packages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `import torchvision` does beside a torch that it was not compiled for; timm imports it too."""
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").write_text('raise RuntimeError("operator torchvision::nms does not exist")\n')
    monkeypatch.delitem(sys.modules, library, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert message_of(f"{library}:resnet18") == (
        f"The package {library} is installed but cannot be imported (RuntimeError: operator torchvision::nms does not "
        f"exist); install builds of {packages} that match torch {torch.__version__}, see https://pytorch.org/get-started."
    )
