"""Models as ONNX graphs: in ONNX Runtime as in PyTorch, told of in the card, whole or not there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from small_models import VOCABULARY, drawn, one_of_each, tokens
from standard_specs import FOUND

onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("onnxscript", reason="needs the extra onnx")

import onnx  # noqa: E402

from mnemic.errors import CheckFailed, UsageError  # noqa: E402
from mnemic.export import folder as folders  # noqa: E402
from mnemic.export.agreement import LEAST, Runtime, compare  # noqa: E402
from mnemic.export.folder import export_folder  # noqa: E402
from mnemic.export.graph import Graphs, graphs_of, quiet  # noqa: E402
from mnemic.export.graph_files import write_graphs  # noqa: E402
from mnemic.export.refusals import ALLOWED, one_refusal  # noqa: E402
from mnemic.hf import folder as models  # noqa: E402
from mnemic.hf.build import make_config, make_model  # noqa: E402
from mnemic.hf.checks import Check  # noqa: E402
from mnemic.hf.shape import Shape  # noqa: E402


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Graphs, tuple[Check, ...]]:
    """A model's folder with its graphs."""
    place = models.save(drawn("longhorn"), tmp_path_factory.mktemp("m") / "m")
    _, graphs, found = export_folder(place)
    return place, graphs, found


def test_graphs_are_pytorch_whole_in_pieces_and_in_steps(exported: Any) -> None:
    _, _, found = exported
    ends = [c.name.partition(" tokens")[2] for c in found]
    assert ends == ["", "", " in two pieces", " and 14 steps"]
    assert all(0 < c.error <= c.bound < 1e-3 for c in found), found


def test_a_rule_of_the_operators_is_its_node(exported: Any) -> None:
    place, graphs, _ = exported
    assert {n: s.update_rule for n, s in graphs.standard.items()} == {"longhorn": "delta"}
    for name in ("prefill.onnx", "step.onnx"):
        graph = onnx.load(place / "onnx" / name, load_external_data=False).graph
        assert "Scan" not in {n.op_type for n in graph.node}
        (node,) = (n for n in graph.node if n.op_type == "LinearAttention")
        assert node.domain == ""
        told = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        assert told["update_rule"] == b"delta"


def test_another_batch_than_was_traced_and_states_of_one_row(exported: Any) -> None:
    """By hand, as docs/models.md does: five rows that share a prompt, then each its own token."""
    place, _, _ = exported
    model = models.load(place).eval()
    runtime = Runtime(place / "onnx")
    prompt, rows = tokens(1, 6), tokens(5, 1, seed=2)
    _, states = runtime.run(prompt.numpy(), runtime.begun())
    logits, after = runtime.run(rows.numpy(), states)
    with torch.no_grad():
        whole = model(torch.cat([prompt.expand(5, -1), rows], 1), use_cache=False).logits
    assert numpy.abs(logits - whole[:, -1:].numpy()).max() <= LEAST * float(whole.abs().max())
    assert {x.shape[0] for x in after.values()} == {5}


def test_every_weight_is_there_once(exported: Any) -> None:
    place, _, _ = exported
    numbers = sum(p.numel() for p in models.load(place).parameters())
    assert (place / "onnx" / "weights.bin").stat().st_size < 4 * numbers + 64 * 40


def test_the_card_tells_of_the_graphs_once(exported: Any) -> None:
    place, _, found = exported
    card = (place / "README.md").read_text(encoding="utf-8")
    assert card.count("## ONNX\n") == 1
    assert "Nodes of `LinearAttention` (opset 27): `longhorn` (`delta`)." in card
    assert "Scan" not in card
    assert f"| {found[0].name} | {found[0].error:.1e} | 1e-05 | passed |" in card
    assert card.index("## Checks\n") < card.index("## ONNX\n") < card.index("## Costs\n")


@pytest.fixture
def again(exported: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that model, for which no graph is traced anew."""
    place, graphs, _ = exported
    copy = shutil.copytree(place, tmp_path / "copy")
    monkeypatch.setattr(folders, "graphs_of", lambda _: graphs)
    monkeypatch.setattr(folders, "write_graphs", lambda _, to: _copied(place / "onnx", to))
    return Path(copy)


def _copied(of: Path, to: Path) -> None:
    shutil.copytree(of, to, dirs_exist_ok=True)


def files(place: Path) -> dict[str, bytes]:
    return {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}


def test_graphs_are_written_over_when_it_is_said(again: Path) -> None:
    before = files(again)
    with pytest.raises(UsageError, match=r"onnx: is there already; --replace writes over it"):
        export_folder(again)
    assert files(again) == before
    export_folder(again, replace=True)
    assert files(again) == before
    export_folder(again, replace=True, verify=False)
    card = (again / "README.md").read_text(encoding="utf-8")
    assert card.count("## ONNX\n") == 1
    assert "They were not run when they were written." in card


def test_nothing_is_written_where_a_graph_is_wrong(
    again: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of weights of another model, too: the comparison sees it."""
    before = files(again)
    model = models.load(again)
    torch.nn.init.normal_(model.get_input_embeddings().weight)
    monkeypatch.setattr(folders, "load", lambda _: model)
    with pytest.raises(CheckFailed, match="no graph is written, since these are not equal: two"):
        export_folder(again, replace=True)
    assert files(again) == before


def test_a_state_that_grows_is_refused(tmp_path: Path) -> None:
    place = models.save(drawn("longhorn", "softmax-attention"), tmp_path / "m")
    before = files(place)
    with pytest.raises(UsageError) as error:
        export_folder(place)
    assert str(error.value) == (
        "block 1, softmax-attention: its state 'keys' grows with the tokens, from [1, 1, 0, 16] to "
        "[1, 1, 9, 16]; allowed: memories whose state has one size, of operators that ONNX has"
    )
    assert files(place) == before


def test_an_operator_that_onnx_lacks_is_named() -> None:
    class Lacking(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.qr(x)[0]

    with pytest.raises(UsageError) as error, one_refusal(["mine", "mine", "other"]), quiet():
        torch.onnx.export(Lacking().eval(), (torch.eye(3),), dynamo=True, verbose=False)
    assert str(error.value) == (
        "mine, other: ONNX has no operator for aten.linalg_qr; allowed: memories whose state has "
        "one size, of operators that ONNX has"
    )


@pytest.mark.full
@pytest.mark.parametrize("name", sorted({*one_of_each(), *FOUND}))
def test_a_model_of_each_class(name: str, tmp_path: Path) -> None:
    model = drawn(name)
    try:
        graphs = graphs_of(model)
    except UsageError as error:
        assert ALLOWED in str(error)
        assert name not in FOUND
        return
    write_graphs(graphs, tmp_path)
    found = compare(model, tmp_path)
    assert all(c.passed for c in found), found
    assert {n: s.update_rule for n, s in graphs.standard.items()} == (
        {name: FOUND[name]} if name in FOUND else {}
    )


@pytest.mark.full
def test_a_node_and_a_scan_in_one_model(tmp_path: Path) -> None:
    place = models.save(drawn("gated-deltanet", "huber-coordinate"), tmp_path / "m")
    _, _, found = export_folder(place)
    assert all(c.passed for c in found), found
    for name, scans in (("prefill.onnx", 1), ("step.onnx", 0)):
        graph = onnx.load(place / "onnx" / name, load_external_data=False).graph
        kinds = [n.op_type for n in graph.node]
        assert (kinds.count("LinearAttention"), kinds.count("Scan")) == (1, scans)
    card = (place / "README.md").read_text(encoding="utf-8")
    assert "Token by token, in a `Scan`: `huber-coordinate`." in card


@pytest.mark.full
def test_groups_of_heads_share_a_state(tmp_path: Path) -> None:
    spec = {"extends": "gated-deltanet", "name": "grouped", "block": {"heads": 4, "groups": 2}}
    model = make_model(make_config([spec], Shape(1, dim=32, vocabulary=VOCABULARY))).eval()
    write_graphs(graphs_of(model), tmp_path)
    found = compare(model, tmp_path)
    assert all(c.passed for c in found), found
