"""Layers and compiled specs leave their process: by pickle, torch.save, multiprocessing."""

import copy
import importlib
import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mnemic
from mnemic.codegen import cache, package
from mnemic.dsl.load import load
from mnemic.errors import EnvironmentFailed
from mnemic.models.language_model import LanguageModel, ModelOptions

KINDS = ("gated-deltanet", "softmax-attention", "lru", "gsa", "titans-mac", "titans-mag", "ttt-mlp")
"""A memory of each sort: activations of its own, slots, hybrids, layers."""

DIM = 16

FRESH = """
import sys, torch
layers = torch.load(sys.argv[1], weights_only=False)
x, expected = torch.load(sys.argv[2])
with torch.no_grad():
    for name, layer in layers.items():
        assert torch.equal(layer(x), expected[name]), name
print(*layers)
"""


@pytest.fixture(scope="module")
def x() -> Tensor:
    """A short sequence."""
    return torch.randn(1, 12, DIM, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, x: Tensor) -> tuple[Path, Path]:
    """Layers as torch.save writes them, and what they make of ``x``."""
    place = tmp_path_factory.mktemp("saved")
    layers = {name: mnemic.compile(name).layer(DIM) for name in KINDS}
    with torch.no_grad():
        torch.save((x, {name: layer(x) for name, layer in layers.items()}), place / "expected.pt")
    torch.save(layers, place / "layers.pt")
    return place / "layers.pt", place / "expected.pt"


def _loaded_afresh(saved: tuple[Path, Path], **variables: str) -> str:
    """The names of the layers that another process loaded, and found right."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FRESH, *map(str, saved)],
        env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_process_loads_layers_without_knowing_of_mnemic(saved: tuple[Path, Path]) -> None:
    assert _loaded_afresh(saved).split() == list(KINDS)


@pytest.mark.full
def test_another_machine_compiles_them_again(
    x: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "one"))
    layer = mnemic.compile("softmax-attention").layer(DIM)
    files = tmp_path / "layers.pt", tmp_path / "expected.pt"
    torch.save({"own": layer}, files[0])
    torch.save((x, {"own": layer(x).detach()}), files[1])
    (tmp_path / "one").rename(tmp_path / "gone")
    assert _loaded_afresh(files, MNEMIC_CACHE=str(tmp_path / "other")).split() == ["own"]


@pytest.mark.parametrize("name", ["deltanet", "titans-mal"])
def test_copies_are_of_the_same_class(name: str, x: Tensor) -> None:
    made = mnemic.compile(name).layer(DIM)
    made.out_scale = 3  # what a user set stays
    for again in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert type(again) is type(made)
        assert again.out_scale == 3
        assert torch.equal(again(x), made(x))
    assert copy.copy(made).get_parameter(next(iter(dict(made.named_parameters())))) is next(
        made.parameters()
    )


def test_parts_of_layers_pickle(x: Tensor) -> None:
    made = mnemic.compile("lru").layer(DIM)
    for part in (made.vectors, made.block, made.sizes, made.rule.signature, made.rule):
        again = pickle.loads(pickle.dumps(part))
        assert type(again) is type(part)
        assert not isinstance(part, nn.Module) or torch.equal(
            again(x, {}, None)[0]["v"], part(x, {}, None)[0]["v"]
        )
    assert pickle.loads(pickle.dumps(made.rule)) is made.rule


def test_a_language_model_is_saved_whole(tmp_path: Path) -> None:
    rule = mnemic.compile("softmax-attention")
    model = LanguageModel(ModelOptions(vocabulary=5, dim=DIM), lambda dim, index: rule.layer(dim))
    torch.save(model, tmp_path / "model.pt")
    again = torch.load(tmp_path / "model.pt", weights_only=False)
    tokens = torch.arange(5)[None]
    assert torch.equal(again(tokens), model(tokens))
    again.load_state_dict(model.state_dict())


class Own(nn.Module):
    """Somebody's module around a layer, in a module of theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = mnemic.compile("deltanet").layer(DIM)


def test_a_compiled_spec_is_copied_and_pickled(tmp_path: Path) -> None:
    for compiled in (mnemic.compile("deltanet"), mnemic.compile("deltanet", tmp_path / "mine")):
        assert compiled.module
        assert compiled.rule
        assert copy.copy(compiled) is copy.deepcopy(compiled) is compiled
        again = pickle.loads(pickle.dumps(compiled))
        assert again == compiled
        assert again.module is compiled.module
    model = Own()
    assert torch.equal(pickle.loads(pickle.dumps(model)).memory.out.weight, model.memory.out.weight)


def test_code_changed_by_hand_is_needed_as_it_was(tmp_path: Path) -> None:
    compiled = mnemic.compile("deltanet", tmp_path / "mine")
    module = compiled.folder / "deltanet.py"
    module.write_text(module.read_text(encoding="utf-8") + "\nMINE = 1\n", encoding="utf-8")
    content = pickle.dumps(compiled.layer(DIM))
    assert pickle.loads(content).rule is compiled.operator
    compiled.folder.rename(tmp_path / "elsewhere")
    told = (
        r"deltanet: pickled with code that was changed by hand, in .*mine: that folder, as it was"
    )
    with pytest.raises(EnvironmentFailed, match=told):
        pickle.loads(content)


def test_other_code_of_another_version_is_told() -> None:
    compiled = mnemic.compile("deltanet")
    function, (spec, folder, _, whole, version) = compiled.__reduce__()
    assert function(spec, "/nowhere", None, whole, version) == compiled
    told = f"deltanet: pickled with the code of mnemic {version}, which differed; compiled again"
    with pytest.warns(UserWarning, match=told):
        assert function(spec, folder, "another", whole, version) == compiled


def test_a_folder_under_its_own_name_pickles_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: Tensor
) -> None:
    """As any package does: neither side needs mnemic."""
    mnemic.compile("softmax-attention", tmp_path / "own_softmax")
    monkeypatch.syspath_prepend(str(tmp_path))
    layer = importlib.import_module("own_softmax").Layer(DIM)
    content = pickle.dumps(layer)
    assert b"own_softmax" in content
    assert b"mnemic.pipeline" not in content
    assert torch.equal(pickle.loads(content)(x), layer(x))
    assert pickle.loads(pickle.dumps(layer.rule)) is layer.rule


def test_a_folder_under_any_other_name_says_what_is_needed(x: Tensor) -> None:
    folder = mnemic.compile("deltanet").folder
    place = importlib.util.spec_from_file_location(
        "anonymous", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert place is not None
    assert place.loader is not None
    sys.modules["anonymous"] = module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    layer = module.Layer(DIM)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    with pytest.raises(pickle.PicklingError) as caught:
        pickle.dumps(layer)
    assert str(caught.value) == (
        f"the code of this object was imported from {folder} as 'anonymous', a name that no other "
        "process can import: import the folder by its own name, with its parent on sys.path, on "
        "both sides; or make the layer with mnemic.compile(spec).layer(dim), with mnemic installed "
        "on both sides; or save layer.state_dict()"
    )
    del sys.modules["anonymous"]


def _ran(layer: Any, x: Tensor) -> Tensor:
    return layer(x).detach()


@pytest.mark.full
def test_spawned_processes_run_layers_and_give_their_errors_back(x: Tensor) -> None:
    layer = mnemic.compile("softmax-attention").layer(DIM)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert torch.equal(pool.submit(_ran, layer, x).result(), layer(x))
        with pytest.raises(ValueError, match=r"x: read shape \[1, 12, 15\]") as caught:
            pool.submit(_ran, layer, x[..., 1:]).result()
    assert type(caught.value).__name__ == "ArgumentError"
    assert type(caught.value).__module__.startswith(type(layer).__module__.partition(".")[0])


def test_specs_pickle_as_what_they_say() -> None:
    """What a pickle holds of a spec reads as the spec."""
    from mnemic.dsl.catalogue import names
    from mnemic.dsl.writing import short

    for name in names():
        assert load(short(load(name))) == load(name)
    assert package.state_of(Path("/nowhere"))[:2] == (None, True)
