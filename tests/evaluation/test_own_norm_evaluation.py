"""A norm of one's own from end to end: evaluated, resumed, saved, loaded, reported, inspected, diagnosed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import gradreg
from evaluation_toys import SHAPE, linear, part, quick, toy
from gradreg import ConfigError, DataError
from gradreg.evaluation import Evaluation, EvaluationOptions, load
from gradreg.inspection.figure import figure
from gradreg.norms import Threat, Weighted
from gradreg.report.comparison import Comparison
from gradreg.report.writing import render
from own_norms import SumOfChannels, ThreeHalves, own_norms, weights

GREEN = torch.tensor([1.0, 2.0, 1.0]).view(3, 1, 1)


def exact_distance(evaluation: Evaluation, t: Threat) -> tuple[Tensor, Tensor]:
    """Margin over dual norm, to the nearest class; and whether its point lies in the box and the image is right."""
    layer = linear()[1]  # type: ignore[index]
    assert isinstance(layer, nn.Linear)
    x, y = part(60, seed=2, wrong=6).floats(evaluation.index), evaluation.label
    logits, weight = linear()(x).detach(), layer.weight.detach()
    far = []
    for rival in range(4):
        slope = t.dual_norm((weight[rival] - weight[y]).view(-1, *SHAPE))
        far.append(((logits.gather(1, y[:, None]).squeeze(1) - logits[:, rival]) / slope).where(y != rival, torch.inf))
    distance, nearest = torch.stack(far).min(0)
    point = x + distance.view(-1, 1, 1, 1) * t.ascent((weight[nearest] - weight[y]).view(-1, *SHAPE))
    return distance, ~evaluation.wrong & ((point > 0) & (point < 1)).flatten(1).all(1)


@pytest.mark.parametrize("t", [SumOfChannels(), *own_norms(SHAPE).values()], ids=["kinked", *own_norms(SHAPE)])
def test_distances_of_a_linear_model_are_found_and_bounded(t: Threat) -> None:
    found = quick(threat=t, attacks="standard", smoothing=None)
    record = found.threats[t.name]
    exact, free = exact_distance(found, t)
    assert int(free.sum()) >= 3
    assert_close(record.distance[free] / exact[free], torch.ones(int(free.sum())), atol=1e-3, rtol=0)
    assert (record.distance[~found.wrong] >= exact[~found.wrong] * (1 - 1e-4)).all()
    assert record.bounded is not None
    assert (record.bounded.omega_bound[free] <= exact[free] * (1 + 1e-4)).all()
    assert record.symbol == t.symbol
    radii = found.data.usual_radii(t.name)
    assert len(radii) >= 2
    assert radii == tuple(sorted(radii))


def test_end_to_end(tmp_path: Path) -> None:
    """Penalty, fit, standard attacks, bounds, diagnosis, evaluation, files, report in all formats, inspection."""
    norm, data = SumOfChannels(), toy()
    model = linear()
    fitted = gradreg.fit(
        model,
        data,
        gradreg.objectives.Gradient(threat=norm, eps=0.02),
        epochs=1,
        batch_size=64,
        held_out=64,
        probe={"threat": norm, "eps": 0.05, "images": 32},
    )
    assert fitted.best["epoch"] == 1
    model.eval()
    folder = tmp_path / "evaluation"
    found = gradreg.evaluate(model, data, threat=("l2", norm), images=12, folder=folder)
    again = load(folder)
    assert list(again.threats) == ["l2", norm.name]
    record = again.threats[norm.name]
    assert record.norm is not None
    assert (record.symbol, record.norm.dual, record.norm.kind) == ("Σl2", "*", "own_norms.SumOfChannels")
    assert torch.equal(record.attacked.distance, found.threats[norm.name].attacked.distance)
    assert record.bounded is not None
    assert {flag.code for flag in record.flags} >= {"noise-wins", "radius-does-not-help", "left-out"}
    assert "In Σl2, the standard suite ran without square, since its patches are made for their balls." in again.notes
    for ending in ("html", "md", "tex", "csv", "json"):
        written = gradreg.report([again], tmp_path / f"report.{ending}", figures=tmp_path / "figures").read_text()
        assert "Σl2" in written
    assert (tmp_path / "figures" / f"figure-1-{norm.name}.svg").is_file()
    x = data.test.floats([7])
    inspected = gradreg.inspect_image(model, x[0], threat=norm, attacks=["fmn", "deepfool"], samples=200)
    assert (inspected.threat, inspected.symbol) == (norm.name, "Σl2")
    assert "Σl2" in inspected.statements()[0]
    figure(inspected)


def test_an_evaluation_of_an_unknown_norm_is_read_where_its_class_is_not(tmp_path: Path) -> None:
    """Nothing of the class is imported: the record describes the norm."""
    quick(tmp_path, threat=Weighted("linf", GREEN, symbol="green l∞", usual_radii=(0.01, 0.02)))
    facts = json.loads((tmp_path / "evaluation.json").read_text())
    (name,) = facts["threats"]
    assert facts["threats"][name]["norm"]["kind"] == "gradreg.norms.weighted.Weighted"
    again = load(tmp_path)
    assert again.data.usual_radii(name) == (0.01, 0.02)
    assert again.data.usual_radius(name) == 0.02
    assert f"{name}.distance" in (tmp_path / "images.csv").read_text().splitlines()[0]
    assert again.settings.options["threat"] == name
    assert "green l∞ at 0.01" in render(Comparison.of([again]), "md")


def test_other_weights_stand_in_columns_of_their_own() -> None:
    one, other = (
        quick(threat=Weighted("l2", factor * GREEN), smoothing=None, name=f"model {factor:g}") for factor in (1, 2)
    )
    compared = Comparison.of([one, other])
    first, second = compared.threats
    assert first != second
    assert [len(compared.under(threat)) for threat in compared.threats] == [1, 1]
    symbols = [compared.symbol(threat) for threat in compared.threats]
    assert symbols == [f"weighted l2 ({first[-8:]})", f"weighted l2 ({second[-8:]})"]
    lines = render(compared, "md").splitlines()
    assert any(f"{symbols[0]} at 0.5" in line and f"{symbols[1]} at 0.5" in line for line in lines)
    # Twice the weights are twice the distances, so a common column would be wrong by that factor.
    ratio = other.threats[second].mean_distance() / one.threats[first].mean_distance()
    assert ratio == pytest.approx(2, rel=0.01)
    same = Comparison.of([one, quick(threat=Weighted("l2", GREEN), smoothing=None, name="again")])
    assert same.threats == (first,)
    assert same.symbol(first) == "weighted l2"
    assert len(same.under(first)) == 2


def test_a_symbol_that_is_taken_is_told_apart() -> None:
    found = quick(threat=("l2", Weighted("l2", GREEN, symbol="l2")), smoothing=None)
    compared = Comparison.of([found])
    plain, own = compared.threats
    assert (plain, compared.symbol(plain)) == ("l2", "l2")
    assert compared.symbol(own) == f"l2 ({own[-8:]})"


def test_two_norms_under_one_name_are_not_compared() -> None:
    """As of two machines on which a norm depends on something else than its attributes."""
    found = quick(threat=SumOfChannels(), smoothing=None)
    (name,) = found.threats
    norm = found.threats[name].norm
    assert norm is not None
    other = replace(norm, probe=tuple(1.1 * value for value in norm.probe))
    changed = replace(found, threats={name: replace(found.threats[name], norm=other)})
    with pytest.raises(DataError, match=f"were evaluated in two norms that are both called {name}"):
        Comparison.of([found, changed])


def test_other_weights_do_not_continue_a_folder(tmp_path: Path) -> None:
    once = quick(tmp_path, threat=Weighted("l2", GREEN))
    wider = quick(tmp_path, threat=(Weighted("l2", GREEN), Weighted("l2", 2 * GREEN)))
    first, second = wider.threats
    assert torch.equal(wider.threats[first].distance, once.threats[first].distance)
    assert not torch.equal(wider.threats[first].distance, wider.threats[second].distance)


def test_a_norm_that_changed_behind_its_name_does_not_continue_a_folder(tmp_path: Path) -> None:
    outside = [1.0]

    class Hidden(Weighted):
        def _like(self, v: Tensor) -> Tensor:
            return outside[0] * super()._like(v)

    quick(tmp_path, threat=Hidden("l2", GREEN))
    outside[0] = 1.01
    with pytest.raises(ConfigError, match=r"computes other norms than when the evaluation in .* was begun"):
        quick(tmp_path, threat=Hidden("l2", GREEN))


def test_a_local_bound_is_taken_up_again_in_its_norm(tmp_path: Path) -> None:
    """The regularity that a killed evaluation left is loaded with the norm."""
    t = Weighted("linf", weights(SHAPE))
    quick(tmp_path, threat=t)
    for stage in tmp_path.joinpath(".state").glob("bounds.*"):
        stage.unlink()
    (tmp_path / "evaluation.json").unlink()
    again = quick(tmp_path, threat=t)
    assert again.threats[t.name].bounded is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threat": "l3"}, "threat must be one of linf, l2, l1, .*; got 'l3'"),
        ({"threat": ["l2", 3]}, "threat must be one of linf, l2, l1, .*; got 3"),
        ({"threat": 3}, "threat must be a list of names and norms; got 3"),
        ({"threat": []}, r"threat must be one or more of linf, l2, l1, each once; got \[\]"),
        ({"threat": (ThreeHalves(), ThreeHalves())}, "each once; got"),
        ({"threat": ThreeHalves(), "attacks": ("fmn", "square")}, "square supports the threats l2, linf only, since"),
        ({"threat": ThreeHalves(), "autoattack": {ThreeHalves().name: [0.1]}}, "AutoAttack is for linf, l2, l1; got"),
    ],
)
def test_mistakes_in_one_sentence(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EvaluationOptions(**options)  # type: ignore[arg-type]


def test_a_norm_that_does_not_fit_the_images_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"weights must have the shape of an image, \(3, 4, 4\)"):
        quick(tmp_path, threat=("l2", Weighted("l2", torch.ones(7))))
    assert not list(tmp_path.iterdir())
