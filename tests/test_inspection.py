"""One image looked at closely: on a linear model all of it is known, and the picture shows it."""

import math
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor, nn

from gradreg.bounds import Regularity
from gradreg.cli.inspect import Inspect, _chosen_image, show
from gradreg.data import DataSet, Images
from gradreg.display.pictures import magnification
from gradreg.errors import ConfigError, DataError, GradregError
from gradreg.inspection import Inspection, draw, inspect_image
from gradreg.inspection.figure import figure
from gradreg.norms import ThreatName, threat

THREATS: tuple[ThreatName, ...] = ("l2", "linf", "l1")


class Plane(nn.Module):
    """Two classes on either side of a hyperplane through the grey image."""

    def __init__(self, normal: Tensor) -> None:
        super().__init__()
        self.normal = nn.Buffer(normal)

    def forward(self, x: Tensor) -> Tensor:
        height = ((x - 0.5) * self.normal).flatten(1).sum(1)
        return torch.stack([height, torch.zeros_like(height)], 1)


@pytest.fixture
def plane() -> Plane:
    return Plane(torch.randn(1, 6, 6)).eval()


@pytest.fixture
def image(plane: Plane) -> Tensor:
    """0.1 away from the plane in l2 and, even by a single pixel, well inside the pixel box, in class 0."""
    normal = plane.normal
    along = 0.05 * torch.randn(1, 6, 6)
    along -= (along * normal).sum() / normal.square().sum() * normal
    x: Tensor = 0.5 + along + 0.1 * normal / normal.norm()
    return x


def distance(plane: Plane, x: Tensor, norm: ThreatName) -> float:
    """Closed form: the height over the plane over the dual norm of its normal."""
    return float(((x - 0.5) * plane.normal).sum() / threat(norm).dual_norm(plane.normal[None]))


@pytest.mark.parametrize("norm", THREATS)
def test_attacks_bounds_and_certificate_of_a_plane(norm: ThreatName, plane: Plane, image: Tensor) -> None:
    exact = distance(plane, image, norm)
    found = inspect_image(plane, image, threat=norm, samples=500)
    assert (found.label, found.prediction, found.classes) == (0, 0, ("0", "1"))
    p = torch.sigmoid(((image - 0.5) * plane.normal).sum())
    assert found.margin == pytest.approx(float(1 - 2 * p), abs=1e-5)
    slope = float(2 * p * (1 - p) * threat(norm).dual_norm(plane.normal[None]))
    assert found.grad_norm == pytest.approx(slope, rel=1e-4)
    for one in found.found:
        # No attack can be nearer, and those with gradients find the foot of the perpendicular.
        assert one.distance >= exact * (1 - 1e-4)
        close = 1.2 if norm == "l1" else 1.01  # the ball's corners are reached slowly by projections
        assert one.distance <= exact * (close if one.backwards else 2), one.attack
        assert one.prediction == 1
        moved = threat(norm).norm((one.adversarial - image)[None])
        assert float(moved) == pytest.approx(one.distance, rel=1e-4)
        assert one.forwards > 1
    assert found.nearest == found.ranked[0].distance == pytest.approx(exact, rel=5e-3)
    assert len({one.attack for one in found.found}) == len(found.found) >= 2
    assert "polish" not in {one.attack for one in found.found}
    # The bounds are below the distance, the smoothed plane's radius is at most the l2 distance.
    assert found.bound is not None
    assert 0.5 * exact < float(found.bound.omega) <= exact + 1e-6
    assert 0 < float(found.bound.lipschitz) <= exact + 1e-6
    assert int(found.certificate.prediction) == 0
    assert 0 <= float(found.certificate.radius) <= 0.1


@pytest.fixture
def inspection(plane: Plane, image: Tensor) -> Inspection:
    return inspect_image(plane, image, attacks=("fmn", "apgd"), samples=500, classes=("up", "down"))


def test_a_given_regularity_gives_the_bounds(plane: Plane, image: Tensor) -> None:
    """On logits a plane has ω = 0 and L = ‖normal‖, so both bounds are the distance."""
    given = Regularity("l2", "given", plane.normal.norm(), torch.tensor([0.5, 1.0]), torch.zeros(2), scores="logits")
    found = inspect_image(plane, image, attacks=["fmn"], samples=100, regularity=given)
    assert found.bound is not None
    assert float(found.bound.omega) == pytest.approx(0.1, rel=1e-4)
    assert float(found.bound.lipschitz) == pytest.approx(0.1, rel=1e-4)
    assert "(given)" in found.statements()[1]
    with pytest.raises(ConfigError, match=r"regularity must be for linf and top-1, .*; got one for l2 and top-1"):
        inspect_image(plane, image, threat="linf", regularity=given)


def test_the_three_kinds_of_statements_are_told_apart(inspection: Inspection) -> None:
    found, heuristic, certified = inspection.statements()
    assert found.startswith(f"Found: an adversarial image at l2 {inspection.nearest:.4g}")
    assert heuristic.startswith("Heuristic bounds, from estimates (local) that can fail")
    assert certified.startswith("Certificate of the smoothed classifier (σ = 0.25, wrong with probability 0.001")
    assert "up within l2" in certified


def test_the_picture_has_a_row_of_panels_for_each_attack(inspection: Inspection, tmp_path: Path) -> None:
    drawn = figure(inspection)
    shown = [axes.images[0].get_array() for axes in drawn.axes if axes.images]
    assert len(drawn.axes) == 4 * 2
    assert len(shown) == 3 * 2
    for row, one in enumerate(inspection.ranked):
        clean, adversarial, difference = (np.asarray(panel) for panel in shown[3 * row : 3 * row + 3])
        np.testing.assert_allclose(clean, inspection.image[0].numpy())
        np.testing.assert_allclose(adversarial, one.adversarial[0].numpy())
        factor = magnification(one.adversarial - inspection.image)
        np.testing.assert_allclose(difference, factor * (adversarial - clean), atol=1e-6)
        words = " ".join(text.get_text() for axes in drawn.axes[4 * row : 4 * row + 4] for text in axes.texts)
        assert all(part in words for part in (f"×{factor:g}", one.attack, f"{one.distance:.4g}", "taken for down"))
    header = " ".join(text.get_text() for text in drawn.texts)
    assert "Labelled up and classified so" in header
    assert len({text.get_color() for text in drawn.texts}) == 4

    draw(inspection, tmp_path / "new" / "seen.png")
    with Image.open(tmp_path / "new" / "seen.png") as picture:
        assert picture.format == "PNG"
        assert picture.width == 1140
        assert np.asarray(picture.convert("L")).std() > 10
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["seen.png"]


def test_colours_are_drawn_as_colours() -> None:
    plane = Plane(torch.ones(3, 6, 6)).eval()
    found = inspect_image(plane, torch.full((3, 6, 6), 0.55), attacks=["fmn"], samples=100)
    clean, adversarial, difference = (
        np.asarray(axes.images[0].get_array()) for axes in figure(found).axes if axes.images
    )
    assert clean.shape == adversarial.shape == difference.shape == (6, 6, 3)
    # All pixels were lowered by 0.05, shown ten times as large around the grey of no change.
    np.testing.assert_allclose(difference, 0.5 - 10 * 0.05 / 2, atol=0.02)


@pytest.mark.parametrize(
    ("largest", "factor"), [(0.0, 1), (1.0, 1), (0.6, 1), (0.5, 2), (0.2, 5), (0.15, 5), (0.004, 200)]
)
def testmagnification(largest: float, factor: float) -> None:
    assert magnification(torch.tensor([0.0, -largest])) == pytest.approx(factor)


def test_a_misclassified_image_has_nothing_to_find(plane: Plane, image: Tensor) -> None:
    found = inspect_image(plane, image, 1, attacks=["fmn"], samples=100, classes=("up", "down"))
    assert found.nearest == 0
    assert found.bound is None
    assert "misclassified as it is" in found.statements()[1]
    assert "taken for up as it is" in found.statements()[0]
    assert any("taken for up\nas it is" in text.get_text() for axes in figure(found).axes for text in axes.texts)


def test_a_flat_model_has_neither_adversarial_images_nor_bounds() -> None:
    class Flat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 0 * x.flatten(1)[:, :2] + torch.tensor([0.0, 3.0])

    found = inspect_image(Flat().eval(), torch.full((1, 4, 4), 0.5), attacks=["fmn"], samples=200)
    assert found.nearest == math.inf
    assert found.bound is None
    assert "gradient of exactly zero" in found.statements()[1]
    assert "proves nothing" in found.statements()[0]
    assert any("no adversarial image" in text.get_text() for axes in figure(found).axes for text in axes.texts)


def test_the_global_random_stream_is_left_alone(plane: Plane, image: Tensor) -> None:
    before = torch.get_rng_state()
    one, other = (inspect_image(plane, image, threat="linf", attacks=["square"], samples=100, seed=3) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one.found[0].adversarial, other.found[0].adversarial)


@pytest.fixture
def data() -> DataSet:
    pixels = torch.arange(3 * 36, dtype=torch.uint8).view(3, 1, 6, 6)
    images = Images(pixels, torch.tensor([0, 1, 1]), ("up", "down"))
    return DataSet("steps", images, images)


def test_an_image_by_its_place_or_from_a_file(data: DataSet, tmp_path: Path) -> None:
    x, y = _chosen_image(data, "2")
    assert y == 1
    assert torch.equal(x, torch.arange(72, 108).view(1, 6, 6) / 255)
    assert _chosen_image(data, "2", "up")[1] == _chosen_image(data, "2", "0")[1] == 0
    Image.fromarray(np.arange(72, 108, dtype=np.uint8).reshape(6, 6)).save(tmp_path / "grey.png")
    Image.open(tmp_path / "grey.png").convert("RGB").save(tmp_path / "colour.png")
    for name in ("grey.png", "colour.png"):
        read, label = _chosen_image(data, str(tmp_path / name))
        assert label is None
        assert torch.equal(read, x)


@pytest.fixture
def bad_files(tmp_path: Path) -> dict[str, str]:
    Image.new("L", (8, 6)).save(tmp_path / "large.png")
    (tmp_path / "text.png").write_text("no picture")
    return {name: str(tmp_path / f"{name}.png") for name in ("large", "text", "missing")}


def test_bad_images_and_labels_are_one_sentence(data: DataSet, bad_files: dict[str, str]) -> None:
    for image, label, said in (
        ("3", None, "no test image 3 in steps: it has images 0 to 2"),
        ("9" * 5000, None, "no test image 99999999999999999999 in steps"),
        ("²", None, "no image ²"),
        ("0", "²", "no class '²'"),
        ("0", "9" * 5000, "no class '999"),
        ("0", "sideways", "no class 'sideways': take one of up, down"),
        (bad_files["large"], None, "must have 6×6 pixels, as the model takes; got 8×6"),
        (bad_files["text"], None, "cannot be decoded as an image"),
        (bad_files["missing"], None, "no image"),
    ):
        with pytest.raises(DataError, match=said) as raised:
            _chosen_image(data, image, label)
        assert str(raised.value).endswith(".")


def test_bad_questions_are_one_sentence(plane: Plane, image: Tensor, inspection: Inspection, tmp_path: Path) -> None:
    for wrong, said in (
        ({"attacks": ["guess"]}, "attacks must be among .* for l2; got guess"),
        ({"attacks": ["polish"]}, "attacks must be among .* for l2; got polish"),
        ({"attacks": []}, "attacks must be among .* for l2; got none"),
        ({"classes": ["up"]}, "Expected 2 class names, one per logit; got 1"),
        ({"y": 2}, "y must hold labels from 0 to 1, .*; got 2 to 2"),
        ({"x": image[None]}, "x must be one image"),
        ({"x": image + 1}, "outside the box"),
        ({"threat": "l3"}, "threat must be one of .*; got 'l3'"),
        ({"sigma": 0.0}, "sigma must be .* got 0.0"),
    ):
        with pytest.raises(GradregError, match=said):
            inspect_image(plane, **{"x": image, "attacks": ["fmn"], "samples": 100, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"must be a \.png file; got .*seen\.jpg"):
        draw(inspection, tmp_path / "seen.jpg")


def test_the_command(plane: Plane, image: Tensor, tmp_path: Path) -> None:
    shown, output = StringIO(), tmp_path / "seen.png"
    console = Console(file=shown, width=160)
    names = ("up", "down")
    show(inspect_image(plane, image, attacks="apgd,fmn", samples=200, classes=names), output, console)
    assert output.is_file()
    text = shown.getvalue()
    assert "down" in text
    assert "0.1" in text
    assert "Heuristic bounds" in text
    assert str(output) in text
    with pytest.raises(ConfigError, match=r"must be a \.png file; got .*seen.gif"):
        Inspect(image="0", model="cifar10-l2", output=tmp_path / "seen.gif").run()
