"""`gradreg doctor` and `gradreg completion`: they find what is broken, and complete what there is."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gradreg import doctor
from gradreg.cli import commands, main
from gradreg.cli.completion import script


def ended(*arguments: str) -> int | str | None:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return end.value.code


def test_a_sound_installation_is_found_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("doctor", "--device", "cpu") == 0
    said = capsys.readouterr().out
    assert f"torch                            {torch.__version__}\n" in said
    assert said.count(" ok: ") == 3
    assert said.endswith("All self-checks hold.\n")


def test_a_missing_package_names_its_extra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "pip install 'gradreg[report]'" in dict(doctor.extras())["jinja2"]
    assert "pip" not in dict(doctor.extras())["scipy"]


# What makes the penalty wrong is warned of besides.
@pytest.mark.filterwarnings("ignore:Along the gradient at the images")
@pytest.mark.parametrize(
    ("broken", "check"),
    [
        ("gradreg.penalty.difference.divides_by_root", "penalty against double backprop"),
        ("gradreg.norms.lp.L2.dual_norm", "attack against a closed form"),
        ("gradreg.data.mnist5k._SHA256", "embedded digits"),
    ],
)
def test_a_fault_is_found(
    broken: str, check: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each check fails when what it checks computes something else."""
    calls = 0

    def alternating(*_: object) -> bool:
        nonlocal calls
        calls += 1
        return calls % 2 == 0  # the two ways to compute the penalty no longer agree

    def doubled(self: object, v: torch.Tensor) -> torch.Tensor:
        length: torch.Tensor = torch.linalg.vector_norm(v.flatten(1), dim=1)
        return 2 * length

    monkeypatch.setattr(broken, {"dual_norm": doubled, "divides_by_root": alternating}.get(broken.split(".")[-1], "0"))
    assert ended("doctor", "--device", "cpu") == 1
    said = capsys.readouterr().out
    assert f"{check:32} FAILED: " in said
    assert "of the self-checks failed." in said


def test_an_unknown_device_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("doctor", "--device", "abacus") == 2
    assert "device must be" in capsys.readouterr().err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", shell])
    said = capsys.readouterr().out
    assert all(name in said for name, _, _ in commands())
    assert "--images" in said


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    file = tmp_path / "complete.bash"
    file.write_text(script("bash"))
    code = (
        f'source {file}; try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); _tyro_gradreg; '
        'echo "${COMPREPLY[*]}"; }; try gradreg ev; try gradreg evaluate runs/l2 --ima; try gradreg report --form'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["evaluate", "--images", "--format"]
