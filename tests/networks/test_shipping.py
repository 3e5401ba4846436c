"""From a run to a shipped network: what is written, and what is refused."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from gradreg.diagnosis.flags import Flag
from gradreg.errors import GradregError
from gradreg.evaluation import Evaluation
from gradreg.evaluation import load as load_evaluation
from gradreg.provenance import processor
from gradreg.report.cards.figures import Remarks, entries, figures
from gradreg.report.cards.shipping import _portable, ship
from gradreg.runs import load
from gradreg.runs.checkpoints import read
from gradreg.runs.directory import RunDirectory
from gradreg.runs.networks import CURVE, FILES
from handmade import confirmation, confirmed, handmade
from tiny_networks import IMAGES, logits, tiny_evaluation, tiny_run

ROOT = Path(__file__).parents[2]
FIELDS = (
    "link name authors additional_data number_forward_passes dataset venue architecture eps clean_acc reported "
    "autoattack_acc unreliable footnote"
)
NOTE = "The images are JPEG copies."
REMARKS = Remarks(note=(NOTE,), trained_on="an abacus", authors="Nobody", link="https://example.org", venue="Here")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="module")
def evaluation(run: Path) -> Path:
    tiny_evaluation(str(run), run / "evaluation")
    return run / "evaluation"


@pytest.fixture(scope="module")
def shipped(run: Path, evaluation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ship(run, "digits", evaluation, to=tmp_path_factory.mktemp("shelf"), remarks=REMARKS)


def shares(evaluation: Evaluation) -> dict[str, str]:
    """What the card has to say, counted here from the columns; radii as the card writes them."""
    assert evaluation.clean is not None
    errors, n = evaluation.clean
    l2, linf = (evaluation.threats[name].attacked.distance for name in ("l2", "linf"))
    right = {"clean accuracy": 1 - errors / n}
    right |= {f"robust accuracy, l2 {r:g}": float((l2 > r).double().mean()) for r in (0.75, 1.5)}
    right |= {f"robust accuracy, l∞ {r:g}": float((linf > r).double().mean()) for r in (0.05, 0.1)}
    return {what: f"{100 * share:.2f}" for what, share in right.items()}


def test_it_is_a_run_with_the_same_network(run: Path, shipped: Path) -> None:
    assert sorted(path.name for path in shipped.iterdir()) == sorted((*FILES, CURVE))
    assert torch.equal(logits(load(shipped)), logits(load(run)))
    assert read(shipped / "best.safetensors").numbers == read(run / "best.safetensors").numbers
    for name in ("config.toml", "metrics.jsonl"):
        assert (shipped / name).read_bytes() == (run / name).read_bytes()


def test_every_figure_of_the_card_is_the_evaluations(shipped: Path, evaluation: Path) -> None:
    card, record = (shipped / "card.md").read_text(), load_evaluation(evaluation)
    rows = dict(re.findall(r"^\| (\w.*?) \| ([\d.]+) % \|", card, flags=re.MULTILINE))
    assert rows == shares(record)
    assert f"| {IMAGES} |" in card
    assert "| 1,000 |" in card
    for fact in (record.origin.machine, record.origin.torch, "Seed: 0.", NOTE, "on an abacus"):
        assert fact in card
    assert record.origin.commit.rstrip("+") in card
    assert "    gradreg evaluate path/to/digits --threat l2,linf --images 12 --attacks quick" in card
    assert 'gradreg.load("path/to/digits")' in card, "it lies outside of the package"
    assert "    gradreg train recipe.toml --run runs/digits" in card
    assert f"```toml\n{(shipped / 'config.toml').read_text()}```" in card
    assert "the loss ℓ plus 1 · ‖∇ℓ‖_2, by finite differences, h = 0.1" in card
    assert "- l2: not run." in card


def test_robustbenchs_fields_for_each_threat(shipped: Path, evaluation: Path) -> None:
    found = json.loads((shipped / "robustbench.json").read_text())
    right = shares(load_evaluation(evaluation))
    assert list(found) == ["l2", "linf"]
    for entry, eps, row in ((found["l2"], "1.5", "l2 1.5"), (found["linf"], "0.1", "l∞ 0.1")):
        assert list(entry) == FIELDS.split()
        assert entry["eps"] == eps
        assert entry["clean_acc"] == right["clean accuracy"]
        assert entry["reported"] == right[f"robust accuracy, {row}"]
        assert (entry["autoattack_acc"], entry["unreliable"]) == (None, None)
        assert (entry["name"], entry["dataset"], entry["architecture"]) == ("digits", "mnist5k", "small")
        assert (entry["authors"], entry["link"], entry["venue"]) == ("Nobody", "https://example.org", "Here")
        assert entry["footnote"].endswith(NOTE)
        assert "12 of 1,000 test images" in entry["footnote"]


def test_the_card_shows_the_curve(shipped: Path, evaluation: Path) -> None:
    """A well-formed picture by itself, with a line per threat, and the same in words for those who do not see it."""
    text, record = (shipped / CURVE).read_text(), load_evaluation(evaluation)
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [each for each in root.iter() if each.tag.endswith(("script", "image", "foreignObject"))]
    lines = [each for each in root.iter() if (each.get("class") or "").startswith("line solid c0")]
    assert len(lines) == len(record.threats) == 2
    panels = [each for each in root if each.tag.endswith("}svg")]
    assert len({panel.get("y") for panel in panels}) == 2, "one below the other"
    clean = 100 * float((record.prediction == record.label).double().mean())
    words = root.get("aria-label") or ""
    assert words.count(f"attacks: {clean:.1f} % at 0,") == 2
    assert f"![Robust accuracy against distance. {words}]({CURVE})" in (shipped / "card.md").read_text()


def test_the_python_block_of_the_card_is_formatted(shipped: Path) -> None:
    settings = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    command = [sys.executable, "-m", "ruff", "format", "--diff", *settings, str(shipped / "card.md")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def flagged(evaluation: Evaluation, folder: Path) -> Path:
    """The same evaluation with a warning in one threat, saved without the fingerprint of the weights."""
    good = Flag("train-mode", "info", {}, "No layer is in train mode.")
    bad = Flag("noise-wins", "warning", {}, "Noise broke 3 of 12 images.", "Do not believe it.")
    flags = {"l2": (good,), "linf": (good, bad)}
    threats = {name: replace(each, flags=flags[name]) for name, each in evaluation.threats.items()}
    replace(evaluation, threats=threats).save(folder)
    return folder


def test_the_diagnosis_is_told_and_a_warning_makes_the_entry_unreliable(
    run: Path, evaluation: Path, tmp_path: Path
) -> None:
    folder = ship(run, "digits", flagged(load_evaluation(evaluation), tmp_path / "flagged"), to=tmp_path)
    card, found = (folder / "card.md").read_text(), json.loads((folder / "robustbench.json").read_text())
    assert "- l2: no sign of masking in these tests. 1 tests were run and none failed.\n" in card
    assert "- l∞: suspicious.\n  warning, noise-wins: Noise broke 3 of 12 images. Do not believe it." in card
    assert [found[threat]["unreliable"] for threat in ("l2", "linf")] == [False, True]
    assert f" on {processor()}. The weights are" in card, "what the run wrote down, where nobody says it better"


def test_autoattack_counts_only_as_the_standard_version_at_the_radius() -> None:
    broken = (0, 5, 6, 7, 8, 9)
    record = confirmed(handmade(), "l2", confirmation(0.5, broken, "rand"), confirmation(1.0, broken))
    record = confirmed(record, "linf", confirmation(8 / 255, broken))
    found = entries(record, Remarks())
    assert (found["l2"]["autoattack_acc"], found["linf"]["autoattack_acc"]) == (None, "40.00")
    # Our attacks leave images 4 to 9, at l∞ distances of 0.04 and more, AutoAttack 1 to 4: both leave one of ten.
    assert found["linf"]["reported"] == "10.00"
    rows = {figure.what: figure.right for figure in figures(record)}
    assert rows["robust accuracy, l∞ 8/255, by AutoAttack (standard) alone"].value == 0.4
    assert rows["robust accuracy, l∞ 8/255"].value == 0.1
    assert rows["certified accuracy, l2 0.5, smoothed with σ = 0.25"].value == 0.3
    assert (rows["clean accuracy"].value, rows["clean accuracy"].n) == (0.9, 1000)


def test_no_path_of_the_makers_machine_is_left(run: Path, evaluation: Path, shipped: Path) -> None:
    for path in shipped.iterdir():
        assert str(run.parent).encode() not in path.read_bytes()
    recipe = {"data": "folder:/data/imagenet", "phases": [{"data": "folder:~/small"}], "model": {"name": "timm:a/b"}}
    assert _portable(recipe) == {
        "data": "folder:imagenet",
        "phases": [{"data": "folder:small"}],
        "model": {"name": "timm:a/b"},
    }
    assert _portable("folder:C:\\data\\imagenet") == "folder:imagenet"
    assert _portable("folder:imagenet") == "folder:imagenet"


def refused(sentence: str, run: Path, evaluation: Path, to: Path, name: str = "digits", *, again: bool = False) -> None:
    before = sorted(to.rglob("*")) if to.exists() else []
    with pytest.raises(GradregError, match=sentence) as caught:
        ship(run, name, evaluation, to=to, replace=again)
    assert "\n" not in str(caught.value)
    assert (sorted(to.rglob("*")) if to.exists() else []) == before


def test_only_on_purpose_is_anything_written_over(run: Path, evaluation: Path, shipped: Path, tmp_path: Path) -> None:
    refused("exists: choose another --name, or add --replace", run, evaluation, shipped.parent)
    copy = tmp_path / "digits"
    shutil.copytree(shipped, copy)
    (copy / "card.md").write_text("old")
    ship(run, "digits", evaluation, to=tmp_path, replace=True, remarks=REMARKS)
    assert (copy / "card.md").read_text() == (shipped / "card.md").read_text()
    refused("tiny is not a shipped network", run, evaluation, run.parent, "tiny", again=True)


def test_an_evaluation_of_other_weights_is_refused(run: Path, evaluation: Path, tmp_path: Path) -> None:
    other = tiny_run(tmp_path / "other", seed=1)
    refused("of another run than .*seed is 0 there and 1 here", other, evaluation, tmp_path / "shelf")
    # The same recipe and other weights: by the fingerprint, and without it by the answers.
    retouched = tmp_path / "retouched"
    shutil.copytree(run, retouched, ignore=shutil.ignore_patterns("evaluation"))
    refused_as_it_is = "best.safetensors was trained by another recipe than config.toml beside it"
    shutil.copy(other / "best.safetensors", retouched)
    refused(refused_as_it_is, retouched, evaluation, tmp_path / "shelf")
    found = RunDirectory(other).weights("best")
    RunDirectory(retouched).save_weights("best", found.tensors, RunDirectory(run).weights("best").numbers["metrics"])
    sentence = "is not an evaluation of the best weights of"
    refused(sentence, retouched, evaluation, tmp_path / "shelf")
    load_evaluation(evaluation).save(tmp_path / "bare")
    refused(sentence, retouched, tmp_path / "bare", tmp_path / "shelf")
    # A fingerprint that was left behind by another evaluation says nothing.
    shutil.copytree(tmp_path / "bare", tmp_path / "mixed")
    (tmp_path / "mixed" / ".state").mkdir()
    begun = json.loads((evaluation / ".state" / "begun.json").read_text())
    begun["origin"]["created"] = "another day"
    (tmp_path / "mixed" / ".state" / "begun.json").write_text(json.dumps(begun))
    refused(sentence, retouched, tmp_path / "mixed", tmp_path / "shelf")
    ship(run, "digits", tmp_path / "mixed", to=tmp_path / "shelf")


def test_what_else_is_refused(run: Path, evaluation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = tmp_path / "shelf"
    for name in ("Digits", "../digits", "compact", ""):
        refused("name of a shipped network must be lower-case", run, evaluation, shelf, name)
    refused("holds no finished evaluation", run, tmp_path, shelf)
    refused("is neither a run directory", tmp_path, evaluation, shelf)
    record = load_evaluation(evaluation)
    replace(record, data=replace(record.data, name="cifar10")).save(tmp_path / "elsewhere")
    refused("must be an evaluation on mnist5k, .*; got cifar10", run, tmp_path / "elsewhere", shelf)
    replace(record, label=(record.label + 1) % 10).save(tmp_path / "mislabelled")
    refused("are not those of the evaluation", run, tmp_path / "mislabelled", shelf)
    replace(record, settings=replace(record.settings, topk=5)).save(tmp_path / "top5")
    refused("is not an evaluation of the best weights", run, tmp_path / "top5", shelf)
    monkeypatch.setattr(
        import_module("gradreg.report.cards.shipping"),
        "home",
        lambda: tmp_path / "site-packages" / "gradreg" / "networks",
    )
    with pytest.raises(GradregError, match="not installed from a checkout"):
        ship(run, "digits", evaluation)
