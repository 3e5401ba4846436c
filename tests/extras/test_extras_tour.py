"""The notebook of the tour in a Jupyter kernel, with little of everything."""

from pathlib import Path

import nbclient
import nbformat
import pytest

from test_tour import SMALL, TOUR

BARS = ("training", "attack", "certify", "diagnosis")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_runs_in_jupyter_with_progress_bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(TOUR, as_version=4)
    # Bars come after a second of work, which these few images may not take.
    hurry = "import gradreg.progress\ngradreg.progress._PATIENCE = 0.0"
    notebook.cells[1].source = f"{SMALL}\n{hurry}"
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert (tmp_path / "tour.html").is_file()
    shown = [
        output.data["text/plain"] for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output
    ]
    for bar in BARS:
        assert any(text.startswith(bar) for text in shown), f"no bar for {bar}"
