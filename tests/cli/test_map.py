"""`mnemic map`: the relations of systems in words, as JSON and as a picture."""

import json
from pathlib import Path

import pytest

NAMES = ("deltanet", "gated-deltanet", "gla", "linear-attention", "softmax-attention")


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map of a few of the packaged systems."""
    monkeypatch.setattr("mnemic.cli.map.names", lambda: NAMES)


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.yaml"
    path.write_text("mnemic: 1\nname: own\nbias: {expr: e**2}\noptimizer: {rate: token}\n")
    return str(path)


def test_all_relations_and_what_has_none(mnemic):
    done = mnemic("map")
    assert done.code == 0
    assert "deltanet is a special case of gated-deltanet: α = 1" in done.out
    assert "without a relation: softmax-attention" in done.out
    again = mnemic("map")
    assert again.out == done.out, "remembered"


def test_a_system_of_ones_own_a_chain_and_json(mnemic, own):
    near = mnemic("map", own, "--near", "own").out
    assert "deltanet is, under a change of coefficients, own: η′ = η/2" in near
    assert mnemic("map", "--near", own).out == near, "the file itself"
    chain = mnemic("map", own, "--path", "own", "gated-deltanet").out
    told = "for some values the change leaves the range of a coefficient"
    assert chain == f"own is a special case of gated-deltanet: α = 1, η′ = 2·η ({told})\n"
    assert mnemic("map", "--path", own, "gated-deltanet").out == chain
    alone = mnemic("map", "--near", "softmax-attention").out
    assert "no relation to another of 5 systems was found; mnemic diff softmax-attention" in alone
    none = mnemic("map", "--path", "gla", "softmax-attention").out
    assert none == "no chain of relations joins gla and softmax-attention\n"
    data = json.loads(mnemic("map", own, "--json").out)
    assert {row["name"] for row in data["systems"]} == {*NAMES, "own"}
    assert all(row["error"] < 1e-5 for row in data["relations"])


def test_a_picture(mnemic, tmp_path):
    path = tmp_path / "map.svg"
    assert mnemic("map", "-o", str(path)).code == 0
    text = path.read_text()
    assert text.startswith("<?xml")
    assert all(f">{name}<" in text for name in NAMES)


def test_what_is_not_there_is_said(mnemic, tmp_path):
    done = mnemic("map", "--near", "deltanett")
    assert done.code == 2
    assert "read 'deltanett'" in done.err
    assert "did you mean 'deltanet'?" in done.err
    assert "a path ends in .yaml" in mnemic("map", "--near", "nosuch").err
    assert "deltanet" in done.err
    assert mnemic("map", "-o", str(tmp_path / "map.png")).code == 2
    assert mnemic("map", "--near", "gla", "--path", "gla", "deltanet").code == 2
