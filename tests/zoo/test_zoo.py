"""Every public function on every odd model: the answer of its honest twin, or one sentence. Never anything else."""

import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from alone import asked_alone, is_error
from kinds import TRAINED, Odd, X, linear
from odd_answers import MIXING
from odd_models import ZOO
from public_calls import CALLS, EVALUATING, Answer, ask, labels
from torch import Tensor

import gradreg
from gradreg.errors import GradregError, GradregWarning

# Cheap enough to ask every model each time.
_CHEAP = ("Classifier", "regularized_loss", "attack quick", "certify")


@pytest.fixture(autouse=True)
def _streams() -> Iterator[None]:
    before = np.random.get_state()
    with warnings.catch_warnings():
        # Of torch, about ways of building a model that it is about to give up.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message="None of the inputs have requires_grad")
        yield
    np.random.set_state(before)


def refusal_of(odd: Odd, call: str) -> str | None:
    """The sentence that this function must refuse the model with, if any."""
    general = odd.refused.get("" if call in EVALUATING else "*", odd.refused.get("*"))
    return odd.refused.get(call, general) or None


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize(
    "call", [pytest.param(call, marks=() if call in _CHEAP else pytest.mark.slow) for call in CALLS]
)
def test_the_answer_is_right_or_refused(call: str, name: str) -> None:
    odd = ZOO[name]
    model, y = odd.make(), labels((odd.twin or odd.make)())
    found, sentence = ask(call, model, y), refusal_of(odd, call)
    assert torch.is_grad_enabled()
    if isinstance(found, GradregError | GradregWarning):
        assert sentence is not None, f"refused without need: {found}"
        assert re.search(sentence, str(found)), str(found)
        assert "\n" not in str(found)
        return
    assert sentence is None or odd.may_answer, f"to be refused: {sentence}"
    if "adversarial" in found:
        check_adversarial(odd, found, y)
    if odd.exact and call in ("attack quick", "attack standard", "attack paper"):
        exact = distance_of(y, "l2")
        assert (found["distance"] >= 0.9999 * exact).all()
        assert (found["distance"] <= 1.02 * exact).all()
    if odd.twin is not None and call not in odd.not_compared:
        expected = ask(call, odd.twin(), y)
        assert not isinstance(expected, GradregError | GradregWarning), expected
        if not (odd.may_answer and bool(found.get("loss", torch.zeros(())).isnan().any())):  # which shows
            check_same(found, expected, odd.rtol)
    elif call == "diagnose" and "" in odd.refused:
        assert any(int(severity) == 2 for severity in found.values()), "what others refuse is an error of a diagnosis"
    elif call in TRAINED[:2]:
        if name not in MIXING and bool(found["slope"].isfinite().all()):
            torch.testing.assert_close(found["slope"].mean(), found["grad_norm"].mean(), rtol=0.2, atol=1e-3)
    elif call != "diagnose":
        assert not any(bool(value.isnan().any()) for value in found.values())


def check_same(found: Answer, expected: Answer, rtol: float) -> None:
    assert found.keys() == expected.keys()
    for key in found.keys() - {"adversarial"}:
        if key == "weights" and found[key].shape != expected[key].shape:
            continue  # parametrised otherwise
        # A gradient is compared as a whole, since some of its entries are near 0.
        slack = rtol * float(expected[key].abs().max()) if key == "weights" and len(expected[key]) else 1e-5
        np.testing.assert_allclose(found[key].float(), expected[key].float(), rtol=rtol, atol=slack, err_msg=key)


def check_adversarial(odd: Odd, found: Answer, y: Tensor) -> None:
    """Asked alone, by a model that was never asked before."""
    for image, label, distance in zip(found["adversarial"], y.tolist(), found["distance"], strict=True):
        assert not distance.isfinite() or is_error(asked_alone(odd.make(), image), label)


def distance_of(y: Tensor, threat: Any) -> Tensor:
    """The exact distance of the linear model: the smallest gap of logits over the dual norm of its gradient."""
    net = linear()
    weight, logits = net[1].weight.detach(), net(X).detach()
    gaps = logits.gather(1, y[:, None]) - logits
    normals = weight[y][:, None] - weight[None]
    size = gradreg.threat(threat).dual_norm(normals.flatten(0, 1).view(-1, 3, 4, 4)).view(len(y), -1)
    found: Tensor = (
        (gaps / size.clamp(min=1e-30)).masked_fill(torch.nn.functional.one_hot(y, 4).bool(), torch.inf).amin(1)
    )
    return found
