"""Networks by name: in Python, on the command line, and those that are really in the package."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
import torch

import gradreg
from commands import status
from gradreg.cli import main
from gradreg.data import Images
from gradreg.data import load as load_data
from gradreg.errors import GradregError, ModelError
from gradreg.evaluation.record import Evaluation
from gradreg.report.cards.shipping import ship
from gradreg.runs import networks
from gradreg.runs.directory import RunDirectory
from gradreg.runs.networks import folder, names
from gradreg.runs.opening import open_model
from tiny_networks import logits, tiny_evaluation, tiny_run

REAL = networks.home()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tiny_run(tmp_path_factory.mktemp("runs") / "tiny")
    tiny_evaluation(str(run), run / "evaluation")
    return run


@pytest.fixture(scope="module")
def shelf(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shipped networks as an administrator installs them: for reading only."""
    shelf = tmp_path_factory.mktemp("shelf")
    (shelf / "__pycache__").mkdir()
    place = ship(run, "digits-l2", run / "evaluation", to=shelf)
    for path in place.iterdir():
        path.chmod(0o444)
    place.chmod(0o555)
    return shelf


@pytest.fixture
def installed(shelf: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(networks, "home", lambda: shelf)
    monkeypatch.setattr("gradreg.runs.listing.home", lambda: shelf)
    monkeypatch.chdir(tmp_path)
    return shelf


def stamps(place: Path) -> list[tuple[str, int, int]]:
    """Everything that a write would change, also when root ignores permissions."""
    paths = [place, *sorted(place.iterdir())]
    return [(path.name, path.stat().st_mtime_ns, path.stat().st_ino) for path in paths]


def test_names_folders_and_cards(installed: Path) -> None:
    assert names() == ("digits-l2",)
    assert folder("digits-l2") == installed / "digits-l2"
    assert networks.card("digits-l2").startswith("# digits-l2\n")
    with pytest.raises(ModelError, match=r"^There is no shipped network 'digit-l2' \(did you mean 'digits-l2'\?\)"):
        folder("digit-l2")


def test_a_name_loads_as_its_run_did(installed: Path, run: Path) -> None:
    before, state = stamps(installed / "digits-l2"), torch.get_rng_state()
    model = gradreg.load("digits-l2")
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    assert torch.equal(logits(model), logits(gradreg.load(run)))
    opened = open_model("digits-l2")
    assert (opened.subject.name, opened.subject.source, opened.subject.epochs) == ("digits-l2", "digits-l2", 2)
    assert opened.data.name == "mnist5k"
    assert torch.equal(logits(opened.model), logits(model))
    assert stamps(installed / "digits-l2") == before


def test_a_directory_of_that_name_wins_only_if_it_is_a_run(installed: Path, run: Path) -> None:
    Path("digits-l2").mkdir()
    assert torch.equal(logits(gradreg.load("digits-l2")), logits(gradreg.load(run)))
    assert open_model("digits-l2").subject.epochs == 2
    Path("digits-l2").rmdir()
    mine = tiny_run(Path("digits-l2"), epochs=1, seed=1)
    assert not torch.equal(logits(gradreg.load("digits-l2")), logits(gradreg.load(run)))
    assert open_model("digits-l2").subject.epochs == 1
    assert torch.equal(logits(gradreg.load("digits-l2")), logits(gradreg.load(mine.resolve())))


def test_what_does_not_exist_is_told_with_what_does(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = r"^digits is neither a run .*\(did you mean 'digits-l2'\?\): choose one of digits-l2\.$"
    with pytest.raises(GradregError, match=sentence):
        gradreg.load("digits")
    with pytest.raises(GradregError, match="best epoch only"):
        gradreg.load("digits-l2", "last")
    with pytest.raises(GradregError, match="a name that `gradreg networks` lists"):
        open_model("digits")
    empty = Path("empty")
    empty.mkdir()
    monkeypatch.setattr(networks, "home", lambda: empty)
    with pytest.raises(GradregError, match=r"comes with gradreg: this installation has none\.$"):
        gradreg.load("digits-l2")


def test_the_commands(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["networks"])
    heading, line = capsys.readouterr().out.splitlines()
    entry = json.loads((installed / "digits-l2" / "robustbench.json").read_text())
    assert heading.split() == ["name", "data", "network", "clean", "robust", "size"]
    assert re.split(r"  +", line) == [
        "digits-l2",
        "mnist5k",
        "small",
        f"{entry['l2']['clean_acc']} %",
        f"l2 1.5: {entry['l2']['reported']} %, l∞ 0.1: {entry['linf']['reported']} %",
        "0.2 MB",
    ]
    main(["networks", "digits-l2"])
    assert capsys.readouterr().out == networks.card("digits-l2")
    assert status(["networks", "digit"]) == 2
    assert "did you mean 'digits-l2'" in capsys.readouterr().err


def test_it_can_be_evaluated_by_name(installed: Path) -> None:
    before = stamps(installed / "digits-l2")
    few = ["--images", "1", "--attacks", "quick", "--threat", "l2", "--regularity", "local", "--device", "cpu"]
    assert status(["evaluate", "digits-l2", *few]) == 0
    facts = json.loads(Path("evaluations/digits-l2/evaluation.json").read_text())
    assert (facts["subject"]["name"], facts["subject"]["source"]) == ("digits-l2", "digits-l2")
    assert stamps(installed / "digits-l2") == before


@pytest.mark.slow
def test_it_can_be_diagnosed_and_inspected_by_name(installed: Path) -> None:
    before = stamps(installed / "digits-l2")
    assert status(["diagnose", "digits-l2", "--images", "4", "--eps", "0.01", "--device", "cpu"]) in (0, 1)
    inspection = ["inspect", "3", "--model", "digits-l2", "--attacks", "fmn", "--samples", "100", "-o", "a.png"]
    assert status(inspection) == 0
    assert stamps(installed / "digits-l2") == before


def test_a_shipped_network_is_shipped_again_with_new_figures(
    installed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found: Evaluation = tiny_evaluation("digits-l2", tmp_path / "newer")
    command = ["ship", "digits-l2", "--name", "digits-l2", "--evaluation", str(tmp_path / "newer")]
    main([*command, "--to", str(tmp_path / "shelf"), "--note", "One.", "--note", "Two."])
    assert capsys.readouterr().out == f"digits-l2 is in {tmp_path / 'shelf' / 'digits-l2'}.\n"
    card = (tmp_path / "shelf" / "digits-l2" / "card.md").read_text()
    assert "- One.\n- Two.\n" in card
    assert found.origin.created in card
    main([*command, "--to", str(tmp_path / "shelf"), "--replace"])
    assert status([*command, "--to", str(tmp_path / "shelf")]) == 2


def test_without_any_the_listing_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gradreg.runs.listing.names", lambda: ())
    main(["networks"])
    assert "`gradreg ship` adds one from a run" in capsys.readouterr().out


def test_every_network_in_the_package_is_whole() -> None:
    """Its weights load and answer, its card is backed by its entries, and no path of a machine is in it.

    A loop and not a parameter: with no network there, a parametrised test would be a skip.
    """
    halves = [
        path for path in REAL.iterdir() if path.is_dir() and path.name != "__pycache__" and path.name not in names()
    ]
    assert not halves
    for name in names():
        place = folder(name)
        config = RunDirectory(place).config()
        model = gradreg.load(name)
        side = 28 if config["data"] in ("mnist5k", "fashion-mnist") else 32
        shape = (config["model"].get("channels", 3), side, side)
        with torch.no_grad():
            answers = model(torch.rand(2, *shape))
        assert answers.shape == (2, config["model"]["classes"])
        assert answers.isfinite().all()
        entries = json.loads((place / networks.ENTRIES).read_text(encoding="utf-8"))
        for entry in entries.values():
            assert entry["name"] == name
            assert f"| clean accuracy | {entry['clean_acc']} % |" in networks.card(name)
            assert f"{entry['reported']} %" in networks.card(name)
        assert f"]({networks.CURVE})" in networks.card(name)
        assert (place / networks.CURVE).read_text(encoding="utf-8").startswith("<svg ")
        for text in (networks.card(name), (place / networks.CONFIG).read_text(encoding="utf-8")):
            assert not re.search(r"(?:^|[\s\"':=])(?:/home|/root|/tmp|/work|/Users|[A-Z]:\\)", text)
        if config["data"] == "mnist5k":
            test = load_data("mnist5k").test
            assert isinstance(test, Images)
            with torch.no_grad():
                right = (model(test.floats(slice(None))).argmax(1) == test.labels).double().mean().item()
            assert f"{100 * right:.2f}" == next(iter(entries.values()))["clean_acc"]


def test_the_files_are_packaged() -> None:
    """Nothing that git ignores is in a wheel, so no shipped file may be ignored."""
    patterns = [line.strip("/") for line in (Path(__file__).parents[2] / ".gitignore").read_text().split()]
    assert patterns
    assert not [
        name for name in ("networks", networks.CURVE, *networks.FILES) for pattern in patterns if fnmatch(name, pattern)
    ]


def test_a_network_comes_back_in_the_order_in_memory_that_it_was_trained_in() -> None:
    assert RunDirectory(REAL / "cifar10-linf").config()["channels_last"]
    model = gradreg.load(REAL / "cifar10-linf")
    kernels = [weight for weight in model.parameters() if weight.ndim == 4 and weight[0, 0].numel() > 1]
    assert kernels
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in kernels)
    x = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = model(x)
    for weight in kernels:
        weight.data = weight.data.contiguous()
    torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cifar10-l2", "cifar10-linf"])
def test_gradients_of_images_are_contiguous(name: str) -> None:
    """Attacks of other libraries take `grad.view(len(x), -1)`, also of images in another order."""
    model = gradreg.load(REAL / name)
    pixels = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for x in (pixels, pixels.to(memory_format=torch.channels_last)):
        leaf = x.clone().requires_grad_()
        cost = torch.nn.functional.cross_entropy(model(leaf), torch.arange(4))
        (gradient,) = torch.autograd.grad(cost, leaf)  # as torchattacks' PGDL2 does
        assert gradient.is_contiguous()
        assert gradient.view(4, -1).norm(dim=1).gt(0).all()
    (twice,) = torch.autograd.grad(torch.autograd.grad(model(leaf).sum(), leaf, create_graph=True)[0].sum(), leaf)
    assert twice.isfinite().all()
