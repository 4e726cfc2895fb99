"""The notebook of first steps."""

import pathlib

import pytest

NOTEBOOK = pathlib.Path(__file__).parents[1] / "docs/tutorial.ipynb"


@pytest.mark.slow
def test_every_cell_runs_in_a_new_kernel(monkeypatch):
    import nbclient
    import nbformat

    monkeypatch.delenv("MPLBACKEND", raising=False)  # EnvPool's import sets it.
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    executed = nbclient.NotebookClient(notebook, timeout=600).execute()
    *_, last = (x for x in executed.cells if x.cell_type == "code")
    assert "500.0" in last.outputs[-1].text
    pictures = [
        output
        for cell in executed.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 2


def test_notebook_is_committed_without_results():
    text = NOTEBOOK.read_text()
    assert '"outputs": []' in text
    assert "image/png" not in text
