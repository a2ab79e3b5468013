"""A model's folder: what is in it, and that it is written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from packaged import available
from safetensors.torch import load_file
from small_models import one_of_each, small, tokens
from tiers import first_only
from transformers import AutoConfig, AutoModelForCausalLM

from mnemic.dsl.load import load as load_spec
from mnemic.errors import CheckFailed, UsageError
from mnemic.hf import folder
from mnemic.hf.build import make_config, make_model, specs_of
from mnemic.hf.checks import Check
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.pattern import over, sources
from mnemic.hf.shape import SIZES, Shape, named_size


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "spec",
    first_only(
        one_of_each(), "lq-stability", "rls-geometric", "swa", "swla", "titans-mac", "value-less"
    ),
)
def test_a_model_is_read_back_bit_for_bit(spec: str, tmp_path: Path) -> None:
    made = small(spec)
    folder.save(made, tmp_path / "model")
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert type(found) is MnemicForCausalLM
    was, now = made.state_dict(), found.state_dict()
    assert was.keys() == now.keys()
    assert [name for name in was if not was[name].equal(now[name])] == []
    torch.testing.assert_close(found.eval()(tokens()).logits, made(tokens()).logits)


def test_every_specification_is_plain_data(tmp_path: Path) -> None:
    make_config(available(), Shape(1000, 16)).save_pretrained(tmp_path)
    again = AutoConfig.from_pretrained(tmp_path)
    assert specs_of(again) == {name: load_spec(name) for name in available()}


def test_a_folder_tells_what_it_is(tmp_path: Path) -> None:
    checks = (Check("one as the other", 3e-16),)
    place = folder.save(small("deltanet", "swa", blocks=3), tmp_path / "m", checks)
    config = AutoConfig.from_pretrained(place)
    assert (config.layers, config.num_hidden_layers) == (["deltanet", "swa", "deltanet"], 3)
    card = (place / "README.md").read_text()
    assert "| one as the other | 3.0e-16 | passed |" in card
    assert r"W_t = W_{t-1} - \eta_t G_t \tag" in card
    assert "\n## DeltaNet\n" in card
    assert {"lm_head.weight", "model.layers.2.memory.out.weight"} <= load_file(
        place / "model.safetensors"
    ).keys()


def test_the_head_of_a_tied_model_is_its_embedding(tmp_path: Path) -> None:
    place = folder.save(small("deltanet", tied=True), tmp_path / "m")
    assert "lm_head.weight" not in load_file(place / "model.safetensors")
    found = folder.load(place)
    assert found.lm_head.weight is found.model.embed_tokens.weight


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds files that are no model of mnemic; choose anothe"):
        folder.save(small("deltanet"), tmp_path, replace=True)
    place = folder.save(small("deltanet"), tmp_path / "m")
    with pytest.raises(UsageError, match=r"m: holds a model; --replace writes over it, or choose"):
        folder.save(small("swa"), place)
    folder.save(small("swa"), place, replace=True)
    assert folder.load(place).config.layers == ["swa", "swa"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "mine.txt"]


@pytest.mark.parametrize("error", [1e-3, float("nan")])
def test_a_model_that_fails_a_check_is_not_written(tmp_path: Path, error: float) -> None:
    with pytest.raises(CheckFailed, match=r"^the model is not saved, .* equal: this as that: "):
        folder.save(small("deltanet"), tmp_path / "m", [Check("this as that", error)])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_all_weights_is_refused(tmp_path: Path) -> None:
    place = folder.save(small("deltanet"), tmp_path / "m")
    config = json.loads((place / "config.json").read_text())
    config["layers"].append("deltanet")
    (place / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match=r"m: weights missing or unknown: model\.layers\.2\."):
        folder.load(place)
    with pytest.raises(UsageError, match=r"no model of mnemic \(its config\.json is missing"):
        folder.load(tmp_path)


def test_missing_weights_are_drawn_as_a_new_model_draws_them(tmp_path: Path) -> None:
    place = folder.save(small("moneta", blocks=1), tmp_path / "m")
    config = AutoConfig.from_pretrained(place)
    config.layers = ["moneta", "moneta"]
    grown = MnemicForCausalLM.from_pretrained(place, config=config)
    old, new = (dict(grown.model.layers[i].memory.named_parameters()) for i in (0, 1))
    for name, p in old.items():
        loud, expected = (float(x.detach().square().mean().sqrt()) for x in (new[name], p))
        assert loud == pytest.approx(expected, rel=0.5), name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a", ["a"]),
        ("a*2,b", ["a", "a", "b"]),
        (" a * 2 , ./b.yaml ", ["a", "a", "./b.yaml"]),
    ],
)
def test_patterns(text: str, found: list[str]) -> None:
    assert sources(text) == found
    assert over(found, 4) == [*found, *found, *found, *found][:4]


@pytest.mark.parametrize("text", ["", "a,,b", "a*", "a*0", "a*x", "*2", "a*2*3", "a*-1"])
def test_patterns_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"--layers: needs SPEC or SPEC\*TIMES, TIMES at least 1"):
        sources(text)


def test_two_specs_of_one_name_are_refused() -> None:
    other = {**{"name": "deltanet"}, "bias": "l2", "optimizer": {"rate": 0.5}}
    with pytest.raises(UsageError, match=r"^layers: two different specs are named 'deltanet'"):
        make_config(["deltanet", other], Shape(2, 16))


def test_the_papers_sizes() -> None:
    millions = {}
    for name, size in SIZES.items():
        config = make_config(["gated-deltanet"], Shape(size.blocks, size.dim, size.heads))
        with torch.device("meta"):
            model = MnemicForCausalLM(config)
        assert model.model.layers[0].memory.sizes.heads == size.heads
        millions[name] = round(sum(p.numel() for p in model.parameters()) / 1e6)
    assert millions == {"170M": 117, "340M": 361, "760M": 787, "1.3B": 1048}
    with pytest.raises(UsageError, match=r"^--size: read '17M', allowed: .*; did you mean '170M'"):
        named_size("17M")


def test_sizes_that_do_not_go_together_are_refused() -> None:
    config = make_config(["titans-mag"], Shape(1, 6, heads=4))
    with pytest.raises(UsageError, match=r"^the model cannot be made: "):
        make_model(config)
    with pytest.raises(UsageError, match=r"^dim: read 0, must be at least 1$"):
        Shape(1, 0)
    with pytest.raises(UsageError, match=r"^init: read 2.0, must lie between 0 and 1$"):
        Shape(1, 1, init=2.0)


def test_a_seed_gives_the_same_model() -> None:
    config = make_config(["deltanet"], Shape(1, 16, vocabulary=9))
    first, again, other = (make_model(config, seed).state_dict() for seed in (1, 1, 2))
    assert all(first[name].equal(again[name]) for name in first)
    assert not first["lm_head.weight"].equal(other["lm_head.weight"])
