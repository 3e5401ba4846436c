"""The examples that need nothing but gradreg; `make test-extras` runs the others."""

from pathlib import Path

import pytest

from example_runs import ALONE, COMPILED, EXAMPLES, IN_TWO, SHARED, WITH_LIBRARIES, run_example


@pytest.mark.parametrize("name", ALONE)
def test_a_loop_of_its_own(name: str, tmp_path: Path) -> None:
    assert "gradient norm" in run_example(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*COMPILED, *IN_TWO])
def test_compiled_and_in_two_processes(name: str, tmp_path: Path) -> None:
    assert "weights differ from the plain loop's by at most" in run_example(name, tmp_path)


def test_every_example_is_short_run_by_a_test_and_described() -> None:
    scripts = {path.name for path in EXAMPLES.glob("*.py")}
    assert scripts == {*ALONE, *COMPILED, *IN_TWO, *WITH_LIBRARIES, *SHARED}
    page = (EXAMPLES.parent / "docs" / "loops.md").read_text()
    for path in EXAMPLES.iterdir():
        if path.suffix in (".py", ".sbatch", ".yaml"):
            assert len(path.read_text().splitlines()) <= 80, path.name
            assert f"examples/{path.name})" in page, f"{path.name} is missing in docs/loops.md"
