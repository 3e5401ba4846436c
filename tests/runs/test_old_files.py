"""Files that an earlier version wrote still load and give the numbers that they gave then."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import gradreg
from gradreg import Certificates, Pool, Regularity, evaluation
from gradreg.config import tables
from gradreg.data import Images, load
from gradreg.objectives import Gradient
from gradreg.runs import recipes
from gradreg.runs.directory import RunDirectory
from gradreg.runs.optimizers import AdamW
from gradreg.training import train

OLD = Path(__file__).parents[1] / "files" / "before-floors"
EXPECTED: dict[str, dict[str, Any]] = json.loads((OLD / "expected.json").read_text())


def digits() -> tuple[Tensor, Tensor]:
    test = load("mnist5k").test
    assert isinstance(test, Images)
    return test.floats(slice(4)), test.labels[:4]


def close(found: Tensor, expected: list[float]) -> None:
    assert_close(found.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-4, atol=1e-5)


def test_a_run_loads() -> None:
    x, _ = digits()
    with torch.no_grad():
        close(gradreg.load(OLD / "run")(x), EXPECTED["run"]["logits"])
        close(gradreg.load(OLD / "run", "last")(x), EXPECTED["run"]["last_logits"])
    assert [row["epoch"] for row in RunDirectory(OLD / "run").metrics()] == [1, 2, 3]


def test_the_config_of_a_run_is_a_recipe() -> None:
    config = recipes.config(OLD / "run" / "config.toml")
    assert (config.epochs, config.batch_size, config.data, config.ema) == (3, 25, "mnist5k", 0.9)
    assert config.model == {"name": "compact", "width": 2, "classes": 10, "channels": 1}
    assert config.objective == Gradient("l2", lam=1.0, h=2.0, h_jitter=0.5, ramp_epochs=2)
    assert config.optimizer == AdamW(lr=0.02)
    plain, written = tables.plain(config), RunDirectory(OLD / "run").config()
    younger = {"noise": 0.0, "statistics": "noisy", "output_slope": 0.0}
    younger |= {"alignment": False, "omega": 0}
    alone = {"train_only": [], "auto": False, "log_steps": 0}
    assert plain == written | {"objective": written["objective"] | younger} | alone, "what is younger changes nothing"


def test_a_run_resumes_from_its_checkpoint_and_ends_with_the_weights_that_it_had(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(OLD / "run", run)
    fitted = train(recipes.config(run / "config.toml"), run, resume=True)
    before, after = (RunDirectory(place).weights("last") for place in (OLD / "run", run))
    # Those of the average were the network's own then, and are averaged with the weights from the checkpoint on.
    younger = {name for name in after.tensors if "running" in name}
    assert after.tensors.keys() == before.tensors.keys()
    for name in after.tensors.keys() - younger:
        assert_close(after.tensors[name], before.tensors[name], rtol=1e-3, atol=1e-3)
    assert fitted.best.keys() - before.numbers["metrics"].keys() == {"negative_slopes"}
    for name in ("epoch", "step", "clean", "probe", "rollbacks", "held_out"):
        assert fitted.best[name] == pytest.approx(before.numbers["metrics"][name], abs=0.01), name


def test_an_evaluation_loads() -> None:
    found, expected = evaluation.load(OLD / "run" / "evaluation"), EXPECTED["evaluation"]
    subject = found.subject
    assert [subject.name, subject.architecture, subject.objective, subject.epochs] == expected["subject"]
    assert [found.data.name, found.data.images, list(found.data.shape)] == expected["data"]
    assert [found.index.tolist(), found.label.tolist()] == [expected["index"], expected["label"]]
    assert found.prediction.tolist() == expected["prediction"]
    close(found.margin, expected["margin"])
    assert found.clean is not None
    assert list(found.clean) == expected["clean"]
    l2 = found.threats["l2"]
    close(l2.attacked.distance, expected["distance"])
    assert list(l2.attacked.winner) == expected["winner"]
    for eps, share in expected["robust_accuracy"].items():
        assert l2.robust_accuracy(float(eps)).value == share
    assert l2.bounded is not None
    close(l2.bounded.lipschitz_bound, expected["lipschitz_bound"])
    close(l2.bounded.omega_bound, expected["omega_bound"])
    assert {flag.code: flag.severity for flag in l2.flags} == expected["flags"]
    assert l2.gallery is not None
    assert l2.gallery.adversarial.sum().item() == pytest.approx(expected["gallery_pixels"], rel=1e-6)
    (smoothed,) = found.smoothing
    assert smoothed.sigma == expected["sigma"]
    assert smoothed.prediction.tolist() == expected["certified_prediction"]
    close(smoothed.radius, expected["certified_radius"])


def test_a_pool_loads() -> None:
    pool, expected = Pool.load(OLD / "pool.safetensors"), EXPECTED["pool"]
    result = pool.result
    assert pool.about == expected["about"]
    assert len(pool.missing) == 0
    close(result.distance, expected["distance"])
    close(result.adversarial.sum((1, 2, 3)), expected["pixels"])
    assert list(result.winner) == expected["winner"]
    assert [result.forwards.tolist(), result.backwards.tolist()] == [expected["forwards"], expected["backwards"]]
    assert (result.threat, result.topk, result.quantize) == ("l2", 1, None)
    assert list(result.eps or ()) == expected["eps"]


def test_certificates_load() -> None:
    found, expected = Certificates.load(OLD / "certificates.safetensors"), EXPECTED["certificates"]
    assert found.prediction.tolist() == expected["prediction"]
    close(found.radius, expected["radius"])
    assert found.samples.tolist() == expected["samples"]
    assert (found.settings.sigma, found.settings.n) == (expected["sigma"], expected["n"])


def test_a_regularity_loads_and_bounds_as_it_did() -> None:
    """It also recognises the images that it was estimated on."""
    found, expected = Regularity.load(OLD / "regularity.safetensors"), EXPECTED["regularity"]
    close(found.lipschitz, expected["lipschitz"])
    close(found.omega_at(0.5), expected["omega_at_half"])
    bound = gradreg.bounds(gradreg.load(OLD / "run"), *digits(), found)
    close(bound.lipschitz, expected["bound_lipschitz"])
    close(bound.omega, expected["bound_omega"])
