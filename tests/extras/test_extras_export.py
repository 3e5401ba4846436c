"""ONNX files that answer as the network does, and cards as the hub's own library reads them."""

from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from torch import Tensor, nn

import gradreg
from evaluation_toys import linear, quick
from gradreg.errors import ConfigError, ModelError


class Named(nn.Module):
    """As Hugging Face's classifiers return logits."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(48, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.layer(x.flatten(1))}


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "shipped": (lambda: gradreg.load("cifar10-l2"), (3, 32, 32)),
    "normalised": (lambda: gradreg.Classifier(linear(), mean=[0.4, 0.5, 0.6], std=[0.2]).eval(), (3, 4, 4)),
    "mapping": (lambda: Named().eval(), (3, 4, 4)),
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_file_answers_as_the_network_for_any_batch(name: str, tmp_path: Path) -> None:
    make, shape = NETWORKS[name]
    model = make()
    path = gradreg.export_onnx(model, tmp_path / "net.onnx", shape)
    session = onnxruntime.InferenceSession(path)
    for size in (1, 3, 17):
        x = torch.rand(size, *shape)
        with torch.no_grad():
            answered = model(x)
        expected = (answered["logits"] if isinstance(answered, dict) else answered).numpy()
        found = session.run(["logits"], {"pixels": x.numpy()})[0]
        assert np.abs(found - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.filterwarnings("default")
def test_what_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    class Branching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            flat = x.flatten(1)[:, :4]
            return flat if float(flat.sum()) > 1e9 else 2 * flat

    with pytest.raises(ModelError, match="cannot be written as ONNX"):
        gradreg.export_onnx(Branching().eval(), tmp_path / "net.onnx", (3, 4, 4))
    with pytest.raises(ModelError, match="train mode"):
        gradreg.export_onnx(Named(), tmp_path / "net.onnx", (3, 4, 4))
    with pytest.raises(ConfigError, match="shape must be that of one image"):
        gradreg.export_onnx(linear(), tmp_path / "net.onnx", (0, 4))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("default")
def test_the_hub_reads_the_card(tmp_path: Path) -> None:
    evaluation = quick(tmp_path / "evaluation", threat=("linf", "l2"))
    folder = gradreg.publish(linear(), tmp_path / "evaluation", tmp_path / "toy", license="mit", onnx=True)
    card = huggingface_hub.ModelCard((folder / "README.md").read_text())
    assert card.data.license == "mit"
    found = {each.metric_name: each.metric_value for each in card.data.eval_results}
    assert found["robust accuracy, l∞ 8/255"] == round(
        100 * evaluation.threats["linf"].robust_accuracy(8 / 255).value, 2
    )
    assert yaml.safe_load(card.content.split("---")[1])["pipeline_tag"] == "image-classification"
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    x = torch.rand(3, 3, 4, 4)
    np.testing.assert_allclose(session.run(None, {"pixels": x.numpy()})[0], linear()(x).detach().numpy(), atol=1e-5)
