"""Every notebook runs from its first cell to its last, and is kept without outputs."""

import pathlib

import pytest
from packages import needed

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient, _ = needed("nbformat", "nbclient", "ipykernel")
    book = nbformat.read(path, as_version=4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    # Its files and the shell's history belong to this test.
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    folder = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3", resources=folder).execute()
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("text/html" in output.get("data", ()) for cell in code for output in cell.outputs)


def test_there_are_five() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first-steps", "policy", "report", "sweep", "traces"]
