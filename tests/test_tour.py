"""The notebook of the tour: its cells, with little of everything; `make test-examples` runs it in Jupyter."""

import json
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[1] / "examples" / "tour.ipynb"
SMALL = "epochs, images, samples = 2, 10, 100"


def cells(kind: str) -> list[str]:
    notebook = json.loads(TOUR.read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_it_was_run_in_order_without_an_error_and_its_code_is_valid() -> None:
    notebook = json.loads(TOUR.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not any(output["output_type"] == "error" for cell in code for output in cell["outputs"])
    assert not any(output.get("name") == "stderr" for cell in code for output in cell["outputs"])
    for source in cells("code"):
        compile(source, TOUR.name, "exec")
    assert cells("code")[0].startswith("epochs, images, samples = "), "the first cell says how much is done"


@pytest.mark.slow
def test_its_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace: dict[str, object] = {}
    for source in [SMALL, *cells("code")[1:]]:
        exec(compile(source, TOUR.name, "exec"), namespace)
    assert (tmp_path / "tour.html").is_file()
