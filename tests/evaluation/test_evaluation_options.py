"""Options of an evaluation: the same in Python and on the command line, and checked before any work."""

import inspect
from typing import Any

import pytest
import torch
from torch import nn

import gradreg
from gradreg.cli.evaluate import Evaluate
from gradreg.cli.parsing import parse
from gradreg.errors import ConfigError
from gradreg.evaluation import EvaluationOptions


def typed(*arguments: str) -> EvaluationOptions:
    return parse(Evaluate, "gradreg evaluate", ["model", *arguments]).options


def test_the_command_line_has_every_option_and_the_same_defaults() -> None:
    assert typed() == EvaluationOptions()
    shown = inspect.signature(gradreg.evaluate).parameters
    assert {"threat", "attacks", "autoattack", "alpha", "folder", "data"} <= set(shown)
    assert shown["images"].default == EvaluationOptions().images


def test_texts_and_values_mean_the_same() -> None:
    found = typed("--threat", "l2, linf", "--smoothing", "0.25, 1/2", "--autoattack", "linf=8/255, l2=0.5,linf = 2/255")
    assert found.threats == ("l2", "linf")
    assert found.sigmas == (0.25, 0.5)
    assert found.confirmations == {"linf": (8 / 255, 2 / 255), "l2": (0.5,)}
    given = EvaluationOptions(threat=["l2", "linf"], smoothing=(0.25, 0.5), autoattack={"l2": [0.5]})
    assert (given.threats, given.sigmas, given.confirmations) == (found.threats, found.sigmas, {"l2": (0.5,)})
    assert EvaluationOptions(attacks="fmn, pgd").attacks_chosen == ("fmn", "pgd")
    assert EvaluationOptions(attacks="fmn").attacks_chosen == ("fmn",)
    assert EvaluationOptions(attacks="quick").attacks_chosen == "quick"
    assert EvaluationOptions(attacks=["fmn", "pgd"]).attacks_name == "fmn,pgd"
    assert typed("--smoothing", "none", "--autoattack", "none") == EvaluationOptions()
    assert typed("--alpha", "1/1000", "--no-diagnosis") == EvaluationOptions(alpha=0.001, diagnosis=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"threat": "l3"}, "threat must be one of linf, l2, l1, .*; got 'l3'"),
        ({"attacks": "fgsm,pgd"}, "attacks must be a suite .* or a list of attacks .* got 'fgsm,pgd'"),
        ({"smoothing": "a,b"}, "smoothing must be comma-separated numbers such as 0.25,0.5; got 'a,b'"),
        ({"smoothing": [None]}, "smoothing must be a number; got None"),
        ({"images": 0}, "images must be at least 1; got 0"),
        ({"images": "ten"}, "images must be a whole number; got 'ten'"),
        ({"images": 2.5}, "images must be a whole number; got 2.5"),
        ({"images": True}, "images must be a whole number; got True"),
        ({"seed": None}, "seed must be a whole number; got None"),
        ({"alpha": "x"}, "alpha must be a number; got 'x'"),
        ({"diagnosis": "no"}, "diagnosis must be True or False; got 'no'"),
        ({"threat": None}, "threat must be a list of names and norms; got None"),
        ({"attacks": 3}, "attacks must be a list of names; got 3"),
        ({"regularity": "guess"}, "regularity must be one of .*; got 'guess'"),
        ({"autoattack": [0.5]}, "autoattack must give each threat a list of radii"),
        *(
            ({"autoattack": text}, "autoattack must be threats with radii such as linf=8/255,l2=0.5; got")
            for text in ("linf", "linf=", "linf=8/", "linf=8/0", "linf=a", "8/255", "linf:0.1")
        ),
    ],
)
def test_what_means_nothing_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EvaluationOptions(**wrong)


def test_options_or_keywords_not_both_and_no_others(linear: Any, images: Any) -> None:
    pair = images.float(), images.flatten(1)[:, 0].long()
    model = linear.float()
    with pytest.raises(ConfigError, match="Pass options= or keywords, not both; got options= and seed="):
        gradreg.evaluate(model, pair, EvaluationOptions(), seed=1)
    with pytest.raises(ConfigError, match=r"no option 'threats' .*did you mean 'threat'"):
        gradreg.evaluate(model, pair, threats="l2")
    with pytest.raises(ConfigError, match=r"options must be of type EvaluationOptions; got"):
        gradreg.evaluate(model, pair, {"threat": "l2"})  # type: ignore[arg-type]


def test_pixels_of_another_box_are_refused_before_any_work() -> None:
    model = gradreg.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(48, 4)).eval(), box=(0, 255))
    with pytest.raises(ConfigError, match=r"about pixels from 0 to 1.*; got a classifier of pixels from 0 to 255"):
        gradreg.evaluate(model, (torch.rand(4, 3, 4, 4), torch.zeros(4, dtype=torch.int64)))
