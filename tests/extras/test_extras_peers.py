"""Our networks in foolbox, ART, torchattacks and AutoAttack, and what these find in our pools."""

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pandas
import pytest
import torch
from torch import nn

import gradreg
from evaluation_toys import linear, part, quick
from gradreg.display.records import schema

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "peers").glob("*.py"))


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_a_peer_attacks_our_network_and_its_images_hold(script: Path) -> None:
    """Its images are adversarial for the model itself, and no nearer than what the pool keeps."""
    found = runpy.run_path(str(script))
    model, x, y, pool = (found[name] for name in ("model", "x", "y", "pool"))
    theirs = gradreg.Pool(len(x))
    theirs.update(found["adversarial"], model=model, x=x, y=y, name=script.stem, threat="l2")
    assert theirs.result.success.any()
    for i in theirs.result.success.nonzero().flatten().tolist():
        alone = torch.as_tensor(found["adversarial"])[i : i + 1]
        assert int(model(alone).argmax(1)) != int(y[i])
        torch.testing.assert_close(theirs.result.distance[i], (alone - x[i]).norm())
    assert (pool.result.distance <= theirs.result.distance).all()


@pytest.mark.filterwarnings("default")
def test_their_lines_and_ours_run_one_after_the_other() -> None:
    page = (ROOT / "docs" / "coming-from.md").read_text()
    blocks = re.findall(r"^```(?:py|python)\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) == 14
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "coming-from.md", "exec"), namespace)


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    images = part(20, seed=5, wrong=2)
    x, y = images.pixels / 255, images.labels
    return {
        "attack": gradreg.attack(linear(), x, y, attacks="quick", budget=9),
        "certificates": gradreg.certify(linear(), x, sigma=0.25, n=200),
        "evaluation": quick(threat=("l2", "linf")),
    }


@pytest.mark.parametrize("kind", ["attack", "certificates", "evaluation"])
def test_records_keep_to_the_json_schema(kind: str, results: dict[str, Any]) -> None:
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    found = results[kind].to_dict()
    validator.validate(found)
    damages: tuple[Callable[[Any], object], ...] = (
        lambda record: record["images"][0].pop("index"),
        lambda record: record["images"][0].update(index=-1),
        lambda record: record.update(kind="other"),
        lambda record: record["columns"]["index"].pop("about"),
        lambda record: record.pop("versions"),
    )
    for damage in damages:
        broken = results[kind].to_dict()
        damage(broken)
        assert not validator.is_valid(broken)


@pytest.mark.parametrize("kind", ["attack", "certificates", "evaluation"])
def test_a_frame_has_the_records(kind: str, results: dict[str, Any]) -> None:
    frame, found = results[kind].to_pandas(), results[kind].to_dict()
    assert list(frame.columns) == list(found["columns"])
    assert len(frame) == len(found["images"])
    for name, column in found["columns"].items():
        values = [record[name] for record in found["images"]]
        known = [value for value in values if value is not None]
        kept = frame[name].replace([float("inf")], float("nan")) if column["type"] == "number" else frame[name]
        assert kept.dropna().tolist() == known
    assert frame.attrs["kind"] == kind
    assert isinstance(frame, pandas.DataFrame)


def test_autoattack_by_its_name_agrees_with_autoattack_alone() -> None:
    """The real package, at a radius where some images remain: both break the same ones."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 4)).eval()
    x = torch.rand(8, 3, 4, 4)
    y = model(x).argmax(1)
    eps = float(gradreg.attack(model, x, y, threat="linf").distance.median()) * 1.01
    ours = gradreg.attack(model, x, y, threat="linf", attacks=["autoattack"], eps=eps)
    reference = gradreg.attacks.autoattack(model, x, y, threat="linf", eps=eps)
    assert torch.equal(ours.robust(eps), reference.robust(eps))
    assert 0 < ours.robust_accuracy(eps) < 1
    assert "autoattack" in ours.winner
    assert "pyautoattack" in sys.modules
