"""Examples of whole models, at small size."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "edit_a_rule.ipynb"


def example(name: str) -> ModuleType:
    place = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert place is not None
    assert place.loader is not None
    found = importlib.util.module_from_spec(place)
    place.loader.exec_module(found)
    return found


def test_a_spec_becomes_a_model_that_writes(tmp_path: Path) -> None:
    sizes = {"dim": 32, "blocks": 1, "length": 64, "batch": 8, "files": 11}
    found = example("byte_model").run(steps=50, out=tmp_path / "run", **sizes)
    assert any("tanh" in line for line in found["rule"])
    assert found["bits"] < 6.0  # from 8, of a model that knows nothing
    text = found["text"]
    assert text.startswith("def ")
    assert len(text) > 150
    assert sum(character.isascii() for character in text) > 0.95 * len(text)


@pytest.mark.full
def test_a_hybrid_keeps_less_than_attention_and_recalls() -> None:
    found = example("hybrid").run(steps=50, dim=16, length=6)
    grown = {name: one["bytes after 1000"] - one["bytes after 100"] for name, one in found.items()}
    assert grown["memory"] == 0
    assert 0 < 4 * grown["hybrid"] == grown["attention"]
    assert found["attention"]["loss"] < found["hybrid"]["loss"] < found["memory"]["loss"]


def cells(kind: str) -> list[str]:
    found = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell.get("outputs", []) for cell in found] == [[]] * len(found), "kept without outputs"
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def test_the_notebooks_cells_show_how_the_rule_changes() -> None:
    told, names = io.StringIO(), dict[str, object]()
    with contextlib.redirect_stdout(told):
        for cell in cells("code"):
            exec(compile(cell, NOTEBOOK.name, "exec"), names)
    text = told.getvalue()
    assert re.search(r"eₜ = .*    →    eₜ = tanh", text), text
    apart = [float(x) for x in re.findall(r"^(?:mine|robust) (\S+)$", text, re.MULTILINE)]
    assert len(apart) == 2
    assert max(apart) < 1e-12
    errors = names["errors"]
    assert isinstance(errors, dict)
    assert errors["robust"] < 0.5 * errors["mine"]


@pytest.mark.full
def test_the_notebook_runs_in_a_kernel() -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    shown = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert not any(out["output_type"] == "error" for out in shown)
    assert any("'residual'" in out.get("data", {}).get("text/plain", "") for out in shown)
