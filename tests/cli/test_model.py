"""`mnemic model`: specs as a folder that transformers loads."""

import json

import pytest
from transformers import AutoModelForCausalLM

import mnemic.hf  # registers the classes  # noqa: F401

TINY = ("--blocks", "2", "--dim", "16", "--vocabulary", "32")


def test_a_model(mnemic, tmp_path):
    done = mnemic("model", "gated-deltanet", *TINY, "-o", tmp_path / "m")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{tmp_path / 'm'}: ")
    assert "  with a cache, in pieces and token by token, as without: " in done.out
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert model.config.layers == ["gated-deltanet", "gated-deltanet"]
    assert (
        "gated-deltanet: chunk by chunk as token by token"
        in (tmp_path / "m" / "README.md").read_text()
    )


def test_a_pattern_and_json(mnemic, tmp_path):
    told = ("--layers", "deltanet, swa*2", *TINY, "--blocks", "4", "--no-check", "--json")
    done = mnemic("model", *told, "-o", tmp_path / "m")
    assert done.json["layers"] == ["deltanet", "swa", "swa", "deltanet"]
    assert done.json["checks"] == []
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert done.json["parameters"] == sum(p.numel() for p in model.parameters())


def test_a_named_size_gives_way_to_what_is_told(mnemic, tmp_path):
    told = ("--size", "170m", "--blocks", "1", "--dim", "32", "--vocabulary", "8", "--no-check")
    assert mnemic("model", "deltanet", *told, "-o", tmp_path / "m").code == 0
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert (config["hidden_size"], config["memories"]["deltanet"]["heads"]) == (32, 16)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("deltanet",), 2, "--blocks and --dim needed where there is no --size"),
        (TINY, 2, "one of SPEC, --layers and --from is needed"),
        (("deltanet", "--layers", "swa", *TINY), 2, "SPEC and --layers exclude each other"),
        (("deltanet", "--layers", "2", *TINY), 2, "a number of blocks is --blocks 2"),
        (("--from", "x", "--dim", "8", "--untied"), 2, "leave out --dim, --tied"),
        (("deltanet", *TINY, "--heads", "0"), 2, "heads: read 0, must be at least 1"),
        (("deltanett", *TINY), 2, "did you mean 'deltanet'"),
        (("deltanet", "--size", "2B"), 2, "--size: read '2B', allowed: 170M, 340M, 760M, 1.3B"),
    ],
)
def test_what_is_refused(mnemic, tmp_path, arguments, code, message):
    done = mnemic("model", *arguments, "-o", tmp_path / "m")
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_kept(mnemic, tmp_path):
    first = ("model", "deltanet", *TINY, "--no-check", "-o", tmp_path / "m")
    assert mnemic(*first).code == 0
    assert "holds a model; --replace writes over it" in mnemic(*first).err
    assert mnemic(*first, "--replace").code == 0
