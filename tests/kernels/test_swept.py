"""Kernels that go along their memories block by block, against the recurrence, gradients too.

Blocks of 16 channels, so that there are several; in pieces of two chunks a gradient goes through
several launches, and makes the memories in between anew. One token takes the kernel of tokens.
"""

import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from conformance import apart
from tiers import first_only

from mnemic import pipeline

TOKEN = {"rate": "token", "anchor": {"chunk": 8}}
MOMENTUM = {"method": "momentum", "momentum": "token", **TOKEN}

SPECS = {
    "an MLP, momentum": "titans",
    "three MLPs, one behind the other": {
        "memory": {"chain": [{"kind": "mlp"}] * 3, "every": [1, 2, 4]}, "bias": "l2",
        "optimizer": {
            "rate": {"from": "input", "activation": "sigmoid(x)/64"}, "anchor": {"chunk": 8},
        },
    },
    "a rectified MLP without a norm": {
        "memory": {"kind": "mlp", "activation": "relu(x)**2", "norm": False, "residual": False},
        "bias": {"expr": "log(cosh(y - v))"}, "optimizer": TOKEN,
        "retention": {"decay": "token"},
    },
    "an MLP of two slopes": {
        "memory": {"kind": "mlp", "activation": "where(x > 0, x, 0.3*x)"}, "bias": "l2",
        "optimizer": TOKEN,
    },
    "a gated MLP, momentum": {
        "memory": {"kind": "glu", "activation": "silu", "norm": False, "residual": True},
        "bias": "dot", "optimizer": MOMENTUM, "retention": {"decay": 0.9},
    },
    "a gated MLP, a window": {
        "memory": {"kind": "glu", "activation": "silu", "norm": True}, "bias": "l2", "window": 3,
        "optimizer": {
            "rate": {"from": "input", "activation": "sigmoid(x)/64"}, "anchor": {"chunk": 8},
        },
        "retention": {"decay": {"from": "input", "init": 0.99}},
    },
    "an MLP, a layer norm of its rows": {
        "memory": {"kind": "mlp", "norm": False}, "bias": "l2", "optimizer": TOKEN,
        "retention": {"decay": "token", "normalize": "layer-norm"},
    },
    "tokens of an MLP, a window": {
        "memory": {"kind": "mlp"}, "bias": "l2", "window": 3, "optimizer": TOKEN, "retention": {
            "local": {"f-divergence": "kl"}, "constraint": {"kind": "simplex", "scale": 2},
        },
    },
    "an MLP on a simplex": "memora",
    "an MLP of a norm": "moneta",
    "expanded features, a normaliser": "based",
    "features and a decay": {
        "features": {"kind": "polynomial", "degree": 2}, "bias": "dot",
        "retention": {"decay": "token"},
    },
    "a loss of the error's norm": "huber-norm",
    "a matrix on a simplex": "kl-simplex",
    "a matrix of an entry norm": "lq-stability",
    "a matrix in a ball": {
        "retention": {"constraint": {"kind": "ball", "radius": 0.4}},
        "optimizer": {"rate": "token"},
    },
    "a divergence on a simplex": "f-divergence-hellinger",
    "a divergence on simplices of columns": {
        "bias": "l2", "optimizer": {"rate": "token"}, "retention": {
            "local": {"f-divergence": "hellinger"},
            "constraint": {"kind": "simplex", "scale": 2, "over": "columns"},
        },
    },
    "cubes on a simplex": {
        "bias": {"expr": "log(cosh(y - v))"}, "optimizer": {"rate": "token"}, "retention": {
            "local": {"bregman": "w**3"}, "constraint": {"kind": "simplex", "scale": "token"},
        },
    },
    "an MLP of cubes on simplices, an anchor": {
        "memory": {"kind": "mlp"}, "bias": "l2", "optimizer": TOKEN, "retention": {
            "local": {"bregman": "w**3"}, "constraint": {"kind": "simplex", "scale": 2},
        },
    },
}  # fmt: skip

WIDE = {"a divergence on a simplex", "a divergence on simplices of columns", "cubes on a simplex"}
"""Those whose blocks are of keys: there are 20."""

TWO = {"an MLP, momentum", "a matrix on a simplex", "a divergence on a simplex"}
"""Those of two heads."""

LENGTHS = {"three MLPs, one behind the other": (17,), "a gated MLP, a window": (1, 17),
           "tokens of an MLP, a window": (6,),
           "an MLP on a simplex": (8,),
           "an MLP of a norm": (8,), "a matrix on a simplex": (8,),
           "a matrix of an entry norm": (8,), "an MLP of cubes on simplices, an anchor": (6,),
           "a matrix in a ball": (8,),
           **dict.fromkeys(WIDE, (5,))}  # fmt: skip
BY_TOKEN = {
    "an MLP on a simplex", "an MLP of a norm", "a matrix on a simplex", "a matrix of an entry norm",
    "an MLP of cubes on simplices, an anchor", "tokens of an MLP, a window", "a matrix in a ball",
    *WIDE,
}  # fmt: skip
"""Those that have no chunks."""


TRIED = first_only(
    SPECS, "an MLP, momentum", "a rectified MLP without a norm", "a gated MLP, a window",
    "an MLP on a simplex", "expanded features, a normaliser", "a loss of the error's norm",
    "a matrix on a simplex", "a matrix of an entry norm", "a divergence on a simplex",
)  # fmt: skip
"""In the first tier those that are interpreted in a second or two."""


def spec(name: str) -> str | dict:
    found = SPECS[name]
    return found if isinstance(found, str) else {"mnemic": 1, "name": "own", **found}


LEAN = ("an MLP, momentum", "a gated MLP, a window", "expanded features, a normaliser",
        "a loss of the error's norm")  # fmt: skip
"""Of which a lean cut of the gradient is tried too."""


def differences(name: str, tokens: int, folder: str, *, lean: int = 0) -> dict[str, float]:
    """How far outputs, states and gradients are from the recurrence, by name."""
    import torch

    found = apart(spec(name), folder)
    package = found.module.__name__
    fused = importlib.import_module(f"{package}.support.fused")
    importlib.import_module(f"{package}.support.configuration").BLOCKS = (16,)
    fused.PIECE.update({True: 2, False: 3})
    cut = fused.configured
    fused.configured = lambda *kernel, **told: replace(cut(*kernel, **told), lean=lean)
    rule = found.operator
    torch.manual_seed(0)
    key, heads = 20 if name in WIDE else 6, 2 if name in TWO else 1
    layer = found.module.Layer(8, heads=heads, key_dim=key, value_dim=6).double()
    x = torch.randn(1, 5 + tokens, layer.dim, dtype=torch.float64)
    with torch.no_grad():
        given, params = layer.arguments(x), layer.params()
        before = {n: a[:, :5] for n, a in given.items()}
        start = rule(**before, params=params, form="recurrent", output_final_state=True)[1]
    results = []
    for form in ("recurrent", "triton"):
        own = {n: a[:, 5:].detach().clone().requires_grad_() for n, a in given.items()}
        own |= {f"params.{n}": p.detach().clone().requires_grad_() for n, p in params.items()}
        begun = {n: s.clone().requires_grad_(s.is_floating_point()) for n, s in start.items()}
        arguments = {n: a for n, a in own.items() if "." not in n}
        weights = {n.split(".")[1]: a for n, a in own.items() if "." in n}
        options = {} if form == "recurrent" else {"chunk_size": 8}
        with fused.sweeping(always=True):
            y, states = rule(**arguments, params=weights, form=form, initial_state=begun,
                             output_final_state=True, **options)  # fmt: skip
        ends = {"y": y, **{n: s for n, s in states.items() if s.is_floating_point()}}
        loss = sum((e * torch.cos(torch.arange(e.numel()).double()).view(e.shape)).sum()
                   for e in ends.values())  # fmt: skip
        leaves = own | {f"start.{n}": s for n, s in begun.items() if s.requires_grad}
        slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        found_slopes = {f"d_{n}": torch.zeros_like(a) if g is None else g
                        for (n, a), g in zip(leaves.items(), slopes, strict=True)}  # fmt: skip
        results.append({**ends, **found_slopes})
    one, two = results
    return {n: float((one[n] - two[n]).abs().max() / (1 + one[n].abs().max())) for n in one}


@pytest.mark.some(3)
@pytest.mark.few
@pytest.mark.parametrize(
    ("name", "tokens"), [pytest.param(*one.values, t, marks=one.marks) for one in TRIED
                         for t in LENGTHS.get(one.values[0], (1, 27))]
)  # fmt: skip
def test_blocks_are_the_recurrence(interpreter, tmp_path, name: str, tokens: int) -> None:
    found = interpreter(differences, name=name, tokens=tokens, folder=str(tmp_path / "own"))
    assert found
    assert {n: x for n, x in found.items() if not x <= 1e-10} == {}


@pytest.mark.some(1)
@pytest.mark.parametrize("name", first_only(LEAN, *LEAN[2:]))
def test_a_lean_cut_is_the_recurrence(interpreter, tmp_path, name: str) -> None:
    folder = str(tmp_path / "own")
    found = interpreter(differences, name=name, tokens=17, folder=folder, lean=1)
    assert "d_q" in found
    assert {n: x for n, x in found.items() if not x <= 1e-10} == {}


@pytest.mark.parametrize("name", LEAN)
def test_a_lean_cut_loads_rows_for_each_block(name: str) -> None:
    body = kernels(name).split("def chunk_swept_backward(")[1].split("\n@triton")[0]
    loops = body.split("for low_")[1:]
    again = "            if LEAN:\n                "
    assert any(again in loop for loop in loops)


def instead(name: str, folder: str) -> list[str]:
    """The kernels that run if a cut of the one along axes stands in the other's place; and that
    their results are the other's."""
    import torch

    found = apart(spec(name), folder)
    package = found.module.__name__
    fused, tuned, configuration, launch = (
        importlib.import_module(f"{package}.support.{part}")
        for part in ("fused", "tuned", "configuration", "launch")
    )
    rule, seen = found.operator, []
    begin, launch.begin = launch.begin, lambda f, *rest: (seen.append(f.__name__), begin(f, *rest))
    torch.manual_seed(0)
    layer = found.module.Layer(8, heads=2, key_dim=20, value_dim=6).double()
    given = layer.arguments(torch.randn(1, 40, layer.dim, dtype=torch.float64))
    results = []
    for swept in (False, True):
        own = {n: a.detach().clone().requires_grad_() for n, a in given.items()}
        cut = configuration.Configuration(16, 16, 4, swept=swept)
        question = fused.tuned.Question("chunk", (), 1, 1, "", gradient=True)
        with tuned.forcing(question, cut):
            y, states = rule(**own, form="triton", output_final_state=True)
            ends = [y, *states.values()]
            loss = sum(torch.cos(e).sum() for e in ends if e.is_floating_point())
            results.append([*ends, *torch.autograd.grad(loss, list(own.values()))])
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)
    return seen


@pytest.mark.full
def test_a_cut_may_be_one_of_the_kernel_along_axes(interpreter, tmp_path) -> None:
    found = interpreter(instead, name="a loss of the error's norm", folder=str(tmp_path / "own"))
    kinds = ("forward", "forward", "backward")
    assert found == [f"chunk_{p}" for p in kinds] + [f"chunk_swept_{p}" for p in kinds]


def kernels(name: str) -> str:
    return (pipeline.compile(spec(name)).folder / "kernels.py").read_text("utf-8")


@pytest.mark.parametrize("name", TRIED)
def test_there_is_a_gradient_too(name: str) -> None:
    text = kernels(name)
    for form in ("token",) if name in BY_TOKEN else ("chunk", "token"):
        assert f"def {form}_swept_forward(" in text
        assert f"def {form}_swept_backward(" in text


SWEEPS = [
    ("titans", "chunk_swept_forward", 2),
    ("titans", "chunk_swept_backward", 5),  # the second has three rows of operands
    ("moneta", "token_swept_forward", 4),
    ("based", "chunk_swept_forward", 1),
]


@pytest.mark.parametrize(("name", "kernel", "count"), SWEEPS)
def test_as_many_sweeps_as_sums_depend_on_sums(name: str, kernel: str, count: int) -> None:
    text = (pipeline.compile(name).folder / "kernels.py").read_text("utf-8")
    lines = text.split(f"def {kernel}(")[1].split("\n@triton")[0].splitlines()
    assert sum(line.startswith(" " * 8 + "for low_") for line in lines) == count


@pytest.mark.parametrize("name", ["titans", "ttt-mlp", "cms"])
def test_a_section_holds_no_rows_of_earlier_ones(name: str) -> None:
    """What a sweep sums, the section behind it holds; later ones load it."""
    text = (pipeline.compile(name).folder / "kernels.py").read_text("utf-8")
    body = text.split("def chunk_swept_backward(")[1].split("\n@triton")[0]
    sections = body.split("some = tl.minimum(live, 1)")[1].split("row, chunk, memory = ")
    begun = re.compile(r"^ +(\w+) = tl\.zeros\(\(C, BK,\), REAL\)$", re.MULTILINE)
    summed: dict[str, int] = {}
    for number, section in enumerate(sections):
        for row in (n for n, made in summed.items() if made < number - 1):
            if re.search(rf"\b{row}\b", section):
                assert f"{row} = tiles.load_rows(scratch_K, " in section, (number, row)
        summed |= {n: number for n in begun.findall(section) if n not in summed}
    assert len(summed) > 3


def test_a_memory_of_values_alone_is_shared_out_among_programs_instead() -> None:
    assert "_swept" not in (pipeline.compile("gated-deltanet").folder / "kernels.py").read_text()


def choices(folder: str) -> list[list[str]]:
    """The kernels that run by width of a head, without a gradient and with one."""
    from mnemic.codegen.package import load

    module = load(Path(folder))
    fused = importlib.import_module(f"{module.__name__}.support.fused")
    kernel = module.rule.kernels().CHUNK
    found = []
    for width in (8, 64):
        sizes = {"K": width, "K2": 4 * width}
        found.append([fused.suited(kernel, sizes, gradient=told).name for told in (False, True)])
    with fused.sweeping(always=False):
        found.append([fused.suited(kernel, {"K": 64, "K2": 256}, gradient=True).name])
    return found


def test_what_registers_hold_stays_there(interpreter) -> None:
    folder = str(pipeline.compile("titans").folder)
    assert interpreter(choices, folder=folder) == [
        ["chunk", "chunk"], ["chunk_swept", "chunk_swept"], ["chunk"],
    ]  # fmt: skip
