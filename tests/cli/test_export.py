"""`mnemic export`: what it prints, and that what has no graph ends with one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_models import drawn

pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("onnxscript", reason="needs the extra onnx")

from mnemic.export import folder as folders
from mnemic.export.graph import Graphs
from mnemic.export.standard_rules import Standard
from mnemic.hf import folder as models
from mnemic.hf.checks import Check


def test_what_has_no_graph_ends_with_one_line(mnemic: Any, tmp_path: Path) -> None:
    place = models.save(drawn("softmax-attention"), tmp_path / "m")
    done = mnemic("export", place)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("mnemic: block 0, softmax-attention: its state 'keys' grows with")
    assert not (place / "onnx").exists()
    done = mnemic("export", tmp_path, "--json")
    assert (done.code, done.json["error"]) == (2, "UsageError")


def test_it_tells_what_it_found(
    mnemic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "step.onnx").touch()
    asked = []

    def told(folder: Path, **options: bool) -> Any:
        asked.append(options)
        form = Standard("delta", None, False, 1, 1, 1)
        graphs = Graphs({}, None, None, {"longhorn": form})  # type: ignore[arg-type]
        return folder / "onnx", graphs, (Check("two rows", 1.5e-7, 1e-5),)

    monkeypatch.setattr(folders, "export_folder", told)
    done = mnemic("export", tmp_path, "--no-verify", "--replace")
    assert done.out.splitlines()[1:] == [
        "  longhorn: LinearAttention, delta",
        "  two rows: 1.5e-07",
    ]
    done = mnemic("export", tmp_path, "--json")
    assert done.json == {
        "folder": str(tmp_path / "onnx"),
        "standard": {"longhorn": "delta"},
        "checks": [{"name": "two rows", "error": 1.5e-7, "bound": 1e-5, "passed": True}],
    }
    assert asked == [{"verify": False, "replace": True}, {"verify": True, "replace": False}]
