"""A folder as it is published: flat, with what its spec needs and no more, and right on its own."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mnemic import pipeline
from mnemic.codegen import package

SPECS = (
    "gated-deltanet", "linear-attention", "huber-coordinate", "softmax-attention", "deltaformer",
    "mesa", "rls", "log-linear-gated-deltanet", "titans", "ttt-mlp", "gsa", "omega-linear",
    "local-linear-attention", "kl-simplex", "f-divergence",
)  # fmt: skip
"""Specs that between them need every part of the support package that a form calls."""

FEW = ("gated-deltanet", "softmax-attention", "kl-simplex")
"""Those of the first tier."""

HYBRID = {
    "mnemic": 1, "name": "beside", "extends": "gla",
    "block": {"hybrid": "gate", "attention_window": 8},
}  # fmt: skip

DIM = 16

ALONE = """
import importlib, sys
for name in ("mnemic", "yaml", "triton"):
    sys.modules[name] = None
import torch
sys.path.insert(0, {root!r})
for name in {names!r}:
    layer = importlib.import_module(name).Layer({dim})
    told = torch.load(f"{root}/{{name}}.pt")
    layer.load_state_dict(told["weights"])
    x = told["x"].requires_grad_()
    out = layer(x)
    out.square().sum().backward()
    torch.save({{"out": out.detach(), "gradient": x.grad}}, f"{root}/{{name}}.out.pt")
"""
"""What a process does that has torch and nothing else."""


def gradient(layer: torch.nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """What a layer gives, and the gradient of its square at x."""
    x = x.clone().requires_grad_()
    out = layer(x)
    out.square().sum().backward()
    assert x.grad is not None
    return out.detach(), x.grad


def names(root: Path) -> list[str]:
    """The specs whose folders lie there."""
    return [name for name in (*SPECS, "beside") if (root / name.replace("-", "_")).exists()]


@pytest.fixture(
    scope="module", params=[FEW, pytest.param((*SPECS, "beside"), marks=pytest.mark.full)], ids=len
)
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Published folders side by side."""
    folder = tmp_path_factory.mktemp("published")
    for name in request.param:
        spec = HYBRID if name == "beside" else name
        pipeline.compile(spec, folder / name.replace("-", "_"))
    return folder


@cache
def in_process(name: str) -> torch.nn.Module:
    """The layer of the whole folder in mnemic's cache."""
    spec = HYBRID if name == "beside" else name
    torch.manual_seed(1)
    layer: torch.nn.Module = pipeline.compile(spec).layer(DIM)
    return layer


def test_folders_run_with_torch_alone_and_equal_the_layer_in_this_process(root: Path) -> None:
    given = {}
    for name in names(root):
        torch.manual_seed(2)
        given[name] = torch.randn(2, 21, DIM)
        told = {"weights": in_process(name).state_dict(), "x": given[name]}
        torch.save(told, root / f"{name.replace('-', '_')}.pt")
    modules = [name.replace("-", "_") for name in names(root)]
    code = ALONE.format(root=str(root), names=modules, dim=DIM)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": ""}, cwd=root,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in names(root):
        found = torch.load(root / f"{name.replace('-', '_')}.out.pt")
        out, grad = gradient(in_process(name), given[name])
        torch.testing.assert_close(found["out"], out, rtol=1e-5, atol=1e-6, msg=name)
        torch.testing.assert_close(found["gradient"], grad, rtol=1e-5, atol=1e-6, msg=name)


def test_what_is_left_out_computes_nothing(root: Path) -> None:
    """The same numbers to the last bit: forwards, gradients, steps, masks, packed documents."""
    for name in names(root):
        layer = in_process(name)
        published = package.load(root / name.replace("-", "_")).Layer(DIM)
        published.load_state_dict(layer.state_dict())
        torch.manual_seed(3)
        x = torch.randn(2, 21, DIM)
        for ours, theirs in zip(calls(layer, x), calls(published, x), strict=True):
            assert ours.equal(theirs), name


def calls(layer: torch.nn.Module, x: Tensor) -> list[Tensor]:
    """What a layer gives in every way of calling it."""
    mask = torch.ones(x.shape[:2], dtype=torch.bool)
    mask[0, :4] = False
    found = [*gradient(layer, x)]
    with torch.no_grad():
        out, state = layer(x[:, :13], output_state=True)
        found += [out, layer(x[:, 13:], state=state), layer(x, mask=mask)]
        found.append(layer(x[:1], cu_seqlens=torch.tensor([0, 9, 9, 21])))
        found += [layer(x, form=form) for form in ("recurrent", "chunk") if form in forms(layer)]
        state = None
        for x_t in x[:, :3].unbind(1):
            y_t, state = layer.step(x_t, state)
            found.append(y_t)
    return found


def forms(layer: torch.nn.Module) -> tuple[str, ...]:
    return tuple(layer.rule.forms)


def test_files_lie_side_by_side_and_import_torch_and_each_other_alone(root: Path) -> None:
    for name in names(root):
        folder = root / name.replace("-", "_")
        files = {path.stem for path in folder.rglob("*.py")}
        assert files == {path.stem for path in folder.glob("*.py")}
        assert not files & set(sys.stdlib_module_names)  # which a script beside them would miss
        for path in folder.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.level:
                    assert node.level == 1
                    assert {node.module} <= files if node.module else True
                    assert node.module or {a.name for a in node.names} <= files
                elif isinstance(node, ast.Import | ast.ImportFrom):
                    top = {(getattr(node, "module", None) or a.name) for a in node.names}
                    top = {name.partition(".")[0] for name in top}
                    assert top <= sys.stdlib_module_names | {"torch", "triton", "numpy"}


def test_no_name_is_missing_twice_there_or_unused(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--ignore-noqa", "--select",
         "F401,F811,F821,F822", "--output-format", "concise", str(root)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    passed_on = re.compile(r"/__init__\.py:.*F401|.*F401 .*`math|.*F401 .*functional`")
    found = [x for x in done.stdout.splitlines() if ".py:" in x and not passed_on.search(x)]
    assert found == []


def test_a_folder_carries_what_its_spec_needs(root: Path) -> None:
    def defined(name: str) -> set[str]:
        """The functions at the top of all files."""
        trees = [ast.parse(p.read_text("utf-8")) for p in (root / name).glob("*.py")]
        return {n.name for tree in trees for n in tree.body if isinstance(n, ast.FunctionDef)}

    delta, soft = defined("gated_deltanet"), defined("softmax_attention")
    assert {"unit_lower_inverse", "segments", "power_of_two"} <= delta
    assert "attended" not in delta
    assert "unit_lower_inverse" not in soft
    assert not {"earlier_sums", "without_last"} & {
        n.name
        for n in ast.parse((root / "gated_deltanet/ops.py").read_text("utf-8")).body
        if isinstance(n, ast.FunctionDef)
    }  # which only gradients that tests write out in PyTorch call


def lines(folder: Path) -> tuple[int, int]:
    """How many files of Python there are, and their lines."""
    texts = [p.read_text("utf-8") for p in folder.glob("*.py")]
    return len(texts), sum(len(text.splitlines()) for text in texts)


@pytest.mark.parametrize(("tools", "most"), [(True, (42, 11_210)), (False, (33, 9_260))])
def test_a_folder_is_small(tools: bool, most: tuple[int, int], tmp_path: Path) -> None:
    found = lines(pipeline.compile("gated-deltanet", tmp_path / "own", tools=tools).folder)
    assert all(x <= y for x, y in zip(found, most, strict=True)), found


def test_without_tools_the_layer_runs_and_has_no_commands(root: Path, tmp_path: Path) -> None:
    folder = pipeline.compile("gated-deltanet", tmp_path / "bare", tools=False).folder
    gone = {p.name for p in (root / "gated_deltanet").iterdir()} - {
        p.name for p in folder.iterdir()
    }
    assert {"__main__.py", "test_gated_deltanet.py", "verify.py", "tune.py"} <= gone
    layer = package.load(folder).Layer(DIM)
    layer.load_state_dict(in_process("gated-deltanet").state_dict())
    x = torch.randn(2, 21, DIM)
    for ours, theirs in zip(calls(in_process("gated-deltanet"), x), calls(layer, x), strict=True):
        assert ours.equal(theirs)


INTERPRETED = """
import os, sys
sys.modules["mnemic"] = None
import torch
sys.path.insert(0, {root!r})
import gated_deltanet
torch.manual_seed(0)
q, k, v = (torch.nn.functional.normalize(torch.randn(1, 37, 1, 16), dim=-1) for _ in range(3))
own = {{"log_alpha": -torch.rand(1, 37, 1), "eta": torch.rand(1, 37, 1)}}
leaves = [x.requires_grad_() for x in (q, k, v)]
found = []
for form in ("recurrent", "triton"):
    out, _ = gated_deltanet.rule(q, k, v, **own, form=form)
    found.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
for a, b in zip(*found):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
"""


def test_its_kernels_run(root: Path) -> None:
    """In Triton's interpreter, gradients too."""
    pytest.importorskip("triton")
    code = INTERPRETED.format(root=str(root))
    env = {**os.environ, "PYTHONPATH": "", "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stderr


def test_its_scripts_run(root: Path) -> None:
    """As a user starts them: from the folder, which Python then looks for modules in."""
    for words in ([".", "--help"], ["test_kl_simplex.py"]):
        folder = root / "kl_simplex"
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False, cwd=folder,
            env={**os.environ, "PYTHONPATH": ""},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_it_is_found_again_as_a_folder_of_ours(root: Path) -> None:
    """Written over, and its support found by name."""
    folder = pipeline.compile("gated-deltanet", root / "gated_deltanet").folder
    module = package.load(folder)
    assert package.support(module, "verify").__name__.endswith(".verify")
    assert package.support(module, "step").__name__.endswith(".step_launch")


@pytest.mark.parametrize("name", ["ops", "kernels", *(pytest.param(name, marks=pytest.mark.full)
                                                      for name in ("run", "layer"))])  # fmt: skip
def test_a_spec_may_be_called_as_a_file_of_the_folder(name: str, tmp_path: Path) -> None:
    spec = {"mnemic": 1, "name": name, "extends": "deltanet"}
    module = package.load(pipeline.compile(spec, tmp_path / "mine").folder)
    assert module.Layer(DIM)(torch.randn(1, 5, DIM)).shape == (1, 5, DIM)
