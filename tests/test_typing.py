"""A user's script type-checks, with the types that the documentation promises, in the two checkers that people use."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SCRIPT = """
from typing import assert_type

import gradreg
from gradreg.bounds import violations
from gradreg.norms import Threat
from gradreg.objectives import Gradient
from torch import Tensor, nn

model = gradreg.build("small", classes=10)
assert_type(model, nn.Module)
digits = gradreg.data.load("mnist5k")
x, y = digits.test.floats(slice(8)), digits.test.labels[:8]
assert_type(x, Tensor)

out = gradreg.regularized_loss(model, x, y, threat="l2", eps=0.5)
assert_type(out, gradreg.RegularizedLoss)
assert_type(out.grad_norm, Tensor)
out.loss.backward()  # pyright: ignore[reportUnknownMemberType] torch leaves its arguments untyped

found = gradreg.attack(model.eval(), x, y, threat="linf", seed=0)
assert_type(found, gradreg.AttackResult)
assert_type(found.distance, Tensor)
assert_type(gradreg.attacks.fmn(model, x, y), gradreg.AttackResult)

regularity = gradreg.estimate_regularity(model, [(x, y)], threat="l2")
assert_type(regularity, gradreg.Regularity)
bound = gradreg.bounds(model, x, y, regularity)
assert_type(bound.omega, Tensor)
print(violations(bound.omega, found.distance))
assert_type(gradreg.certify(model, x, sigma=0.25), gradreg.Certificates)

evaluation = gradreg.evaluate(model, digits, threat="l2")
assert_type(evaluation, gradreg.Evaluation)
gradreg.report([evaluation], "report.html")


def steepness(threat: Threat, gradient: Tensor) -> Tensor:
    return threat.dual_norm(gradient)


assert_type(gradreg.threat("l2"), gradreg.norms.Threat)
print(steepness(gradreg.threat("l2"), x))
assert_type(gradreg.objectives.Gradient(eps=0.5), Gradient)
"""


def mypy(script: Path) -> list[str]:
    """The strict settings of this repository, and its cache: torch alone takes most of a minute to check afresh."""
    return [
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
        str(script),
    ]


def pyright(script: Path) -> list[str]:
    settings = {"include": [script.name], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "strict"}
    (script.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    return ["basedpyright", "--project", str(script.parent), "--pythonpath", sys.executable, "--level", "error"]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_users_script_type_checks(checker: Callable[[Path], list[str]], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", *checker(script)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
