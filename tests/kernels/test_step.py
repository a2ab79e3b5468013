"""A layer's token through its kernel against the layer's PyTorch step, token after token."""

import sys

import pytest
import torch
from tiers import first_only

from mnemic import pipeline

TOKENS, FEW = 12, 5

NAMED = ("gla", "mamba2", "gated-deltanet", "kda", "titans-linear", "deltaproduct", "rls", "titans",
         "ttt-mlp", "mlstm")  # fmt: skip
"""Of each class, and with what a prologue can hold: several steps a token, a running maximum."""

RATE = {"from": "input", "per": "head", "activation": "exp(-x**2)/4"}
OWN = {
    "bias": {"expr": "log(cosh(e)) + e**2/8"},
    "retention": {"decay": {"from": "input", "per": "head", "activation": "sigmoid(x + 2)"}},
    "optimizer": {"method": "momentum", "rate": RATE, "momentum": "token"},
}
DELTA = {"bias": "l2", "retention": {"decay": "channel"}, "optimizer": {"rate": "token"}}

SPECS = {
    "a user's loss and rate": OWN,
    "two queries a key": {**DELTA, "block": {"heads": 4, "groups": 2, "scale": 0.5}},
    "positions": {**DELTA, "block": {"rotary": True, "groups": 2, "heads": 4}},
    "no convolution": {**DELTA, "block": {"convolution": 0, "gate": "none"}},
    "one tap": {**DELTA, "block": {"convolution": 1, "output_norm": "none"}},
    "no norm, no gate": {
        **OWN, "block": {"gate": "none", "output_norm": "none", "qk_norm": "none"},
    },
    "own activations": {
        **DELTA, "block": {"query": "tanh(x)", "key": "relu(x) + x**2/3", "gate": "gelu(x)"},
    },
    "a query of ones": {"bias": "dot", "block": {"query": "1", "qk_norm": "none"}},
    "a window of gated tokens": {
        "bias": {"expr": "log(cosh(e))"}, "window": 3, "weights": "token",
        "retention": {"decay": "token"}, "optimizer": {"rate": RATE},
    },
    "an anchor": {
        "bias": {"expr": "log(cosh(e))"}, "retention": {"decay": "token", "order": "after"},
        "optimizer": {"rate": RATE, "anchor": {"chunk": 4}},
        "readout": {"memory": "anchor"},
    },
}  # fmt: skip


def differences(
    spec: object, folder: str, dtype: str = "float64", values: int = 10, tokens: int = TOKENS,
    along: bool = False,
) -> dict:  # fmt: skip
    """How far a kernel's outputs and states are from PyTorch's, by name; launches in ``count``.

    More than 16 ``values`` a head are cut into blocks. ``along``: by the kernel that goes along
    memories block by block.
    """
    import importlib
    from pathlib import Path
    from shutil import copytree

    from mnemic.codegen.package import load

    own = copytree(pipeline.compile(spec).folder, f"{folder}/stepped")  # with support/ apart
    module = load(Path(own))
    buffers, fused, step, cuts = (importlib.import_module(f"{module.__name__}.support.{n}")
                                  for n in ("buffers", "fused", "step", "step_cut"))  # fmt: skip
    if values > 16:
        cuts.ENTRIES, cuts.MOST_WARPS = 1, 4
    cuts.BLOCK = 64  # blocks of sixteen channels, so that there are several
    kernels = []
    begin, step.begin = step.begin, lambda f, *rest: (kernels.append(f.__name__), begin(f, *rest))
    layer = begun(module, getattr(torch, dtype), values)
    x = torch.randn(2, 3 + tokens, layer.dim).to(layer.out.weight)
    worst: dict[str, float] = {}
    with (
        torch.no_grad(), counted(step) as count, buffers.watched(),
        fused.sweeping(always=along),
    ):  # fmt: skip
        _, state = layer(x[:, :3], output_state=True, form="recurrent")
        new, own, places = dict(state), {n: s.clone() for n, s in state.items()}, {}
        places = {n: s.data_ptr() for n, s in own.items()}
        for x_t in x[:, 3:].unbind(1):
            y, state = layer.step(x_t, state, form="recurrent")
            y_new, new = layer.step(x_t, new, form="triton")
            y_own = layer.advance(x_t, own, form="triton")
            assert set(state) == set(new) == set(own)
            pairs = {"y": (y, y_new), "y in place": (y, y_own)}
            pairs |= {n: (s, new[n]) for n, s in state.items()}
            pairs |= {f"{n} in place": (s, own[n]) for n, s in state.items()}
            for name, (one, other) in pairs.items():
                assert (one.shape, one.dtype) == (other.shape, other.dtype), name
                worst[name] = max(worst.get(name, 0.0), apart(one, other))
        assert places == {n: s.data_ptr() for n, s in own.items()}
    assert set(kernels) == {"step_swept_kernel" if along else "step_kernel"}
    return {"count": len(count), **worst}


def begun(module, dtype, values):
    """A layer whose parameters are all told apart."""

    torch.manual_seed(0)
    square = module.rule.signature.square or module.Layer.block.rotary
    layer = module.Layer(
        24, heads=2 * module.Layer.grouped(), key_dim=6, value_dim=6 if square else values
    )
    for p in layer.parameters():
        p.data.add_(0.3 * torch.randn_like(p))
    return layer.to(dtype)


def counted(step):
    """Counts a step's launches."""
    from contextlib import contextmanager
    from unittest import mock

    @contextmanager
    def counting():
        with mock.patch.object(step, "run", side_effect=step.run) as called:
            found: list = []
            called.side_effect = lambda *a, plain=step.run.side_effect, **k: (
                found.append(1), plain(*a, **k)
            )[1]  # fmt: skip
            yield found

    return counting()


def apart(one, other) -> float:
    """The largest difference relative to 1 + the largest entry."""
    if not one.numel():
        return 0.0
    gap = (one.double() - other.double()).abs().max() / (1 + one.double().abs().max())
    return float(gap)


def beyond(found: dict, allowed: float, tokens: int = TOKENS) -> dict:
    assert found.pop("count") == 2 * tokens
    return {name: x for name, x in found.items() if not x <= allowed}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", first_only(NAMED, "mamba2", "deltaproduct", "titans", "mlstm"))
def test_a_step(interpreter, tmp_path, name: str) -> None:
    assert beyond(interpreter(differences, spec=name, folder=str(tmp_path)), 1e-13) == {}


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "name", first_only(SPECS, "positions", "one tap", "no norm, no gate", "own activations",
                       "a window of gated tokens", "an anchor")
)  # fmt: skip
def test_a_step_of_ones_own(interpreter, tmp_path, name: str) -> None:
    spec = {"mnemic": 1, "name": "own", **SPECS[name]}
    found = interpreter(differences, spec=spec, folder=str(tmp_path), tokens=FEW)
    assert beyond(found, 1e-13, FEW) == {}


ALONG = {
    "an MLP": "ttt-mlp", "of a norm": "moneta", "on a simplex": "memora",
    "momentum, and anchors put in place at intervals": {
        "memory": {"kind": "mlp", "activation": "gelu"}, "bias": "l2",
        "retention": {"decay": "token"},
        "optimizer": {
            "method": "momentum", "rate": "token", "momentum": "token", "anchor": {"chunk": 4},
        },
    },
    "memories computed at intervals": {
        "memory": {"chain": [{"kind": "mlp"}, {"kind": "mlp"}], "every": [1, 2]}, "bias": "l2",
        "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
    },
    "a gated MLP, a window": {
        "memory": {"kind": "glu", "activation": "silu", "norm": True}, "bias": "l2", "window": 3,
        "retention": {"decay": "token"}, "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
    },
    "a gated MLP": {
        "memory": {"kind": "glu", "activation": "silu", "norm": False, "residual": True},
        "bias": {"expr": "log(cosh(y - v))"}, "retention": {"decay": "token"},
        "optimizer": {"method": "momentum", "rate": "token", "momentum": "token"},
    },
}  # fmt: skip


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name", first_only(ALONG, "an MLP", "a gated MLP, a window",
                       "momentum, and anchors put in place at intervals")
)  # fmt: skip
def test_a_step_along_its_memories(interpreter, tmp_path, name: str) -> None:
    own = ALONG[name]
    spec = own if isinstance(own, str) else {"mnemic": 1, "name": "own", **own}
    found = interpreter(
        differences, spec=spec, folder=str(tmp_path), tokens=FEW, values=6, along=True
    )  # fmt: skip
    assert beyond(found, 1e-13, FEW) == {}


def taken(width: int) -> list[tuple[str, ...]]:
    """The axes along which a step of heads this wide goes: as it is, never, always if it can."""
    import importlib

    module = pipeline.compile("titans").module
    fused, cuts = (importlib.import_module(f"{module.__name__}.support.{n}")
                   for n in ("fused", "step_cut"))  # fmt: skip
    one, sizes = module.Layer.step_kernel(), {"K": width, "K2": 4 * width}
    found = [cuts.suited(one, sizes)]
    for always in (False, True):
        with fused.sweeping(always=always):
            found.append(cuts.suited(one, sizes))
    return [None if x is None else x.along for x in found]


def test_a_step_goes_along_what_registers_do_not_hold(interpreter) -> None:
    assert interpreter(taken, width=16) == [[], [], ["K2"]]
    assert interpreter(taken, width=128) == [["K2"], None, ["K2"]]


@pytest.mark.some(1)
@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 2e-6), ("float16", 4e-3)])
def test_a_step_in_less(interpreter, tmp_path, dtype: str, allowed: float) -> None:
    found = interpreter(differences, spec="gated-deltanet", folder=str(tmp_path), dtype=dtype,
                        tokens=FEW)  # fmt: skip
    assert beyond(found, allowed, FEW) == {}


@pytest.mark.full
@pytest.mark.parametrize("name", first_only(["gated-deltanet", "mlstm", "titans-linear"], "mlstm"))
def test_blocks_of_values(interpreter, tmp_path, name: str) -> None:
    """Several programs a memory: what they share is written once, the norm is PyTorch's."""
    found = interpreter(differences, spec=name, folder=str(tmp_path), values=40,
                        tokens=FEW)  # fmt: skip
    assert beyond(found, 1e-13, FEW) == {}


def chosen(spec: object, folder: str) -> dict[str, bool]:
    """Whether a step takes the kernel, by what is asked for."""
    from mnemic.codegen.package import support

    module = pipeline.compile(spec, out=f"{folder}/chosen").module
    step = support(module, "step")
    cuts = sys.modules[step.suited.__module__]  # a published folder may have both in one file
    layer = begun(module, torch.float64, 10)
    x = torch.randn(2, 2, layer.dim, dtype=torch.float64)
    found = {}
    with torch.no_grad():
        _, state = layer(x[:, :1], output_state=True, form="recurrent")
        asked = {
            "triton": (state, "triton"),
            "auto": (state, "auto"),
            "from nothing": ({}, "triton"),
            "recurrent": (state, "recurrent"),
        }
        for name, (given, form) in asked.items():
            found[name] = step.chosen(layer, x[:, 1:], given, form) is not None
        found["two tokens"] = step.chosen(layer, x, state, "triton") is not None
        cuts.MOST, cuts.ENTRIES = 0, 1
        found["no room"] = step.chosen(layer, x[:, 1:], state, "triton") is not None
    with torch.enable_grad():
        found["with a gradient"] = step.chosen(layer, x[:, 1:], state, "triton") is not None
    return found


@pytest.mark.filterwarnings("ignore:gated-deltanet")
def test_when_a_step_takes_the_kernel(interpreter, tmp_path) -> None:
    found = interpreter(chosen, spec="gated-deltanet", folder=str(tmp_path))
    assert [name for name, taken in found.items() if taken] == ["triton"]


REFUSED = {
    "based": "no tiles for φ(x) by the name of its map",
    "softmax-attention": "states that grow",
    "log-linear": "a tree of levels, which are read by the token's number",
    "gsa": "slots",
}


@pytest.mark.parametrize("name", REFUSED)
def test_why_a_layer_has_none(name: str) -> None:
    found = pipeline.compile(name)
    assert found.module.Layer.no_step == REFUSED[name]
    assert f"no_step = {REFUSED[name]!r}" in found.source
    assert found.module.Layer.step_kernel is None
    assert not (found.folder / "step.py").exists()


def test_a_state_that_grows_does_not_stay_in_place() -> None:

    layer = pipeline.compile("softmax-attention").layer(16)
    x = torch.randn(1, 2, 16)
    _, state = layer(x[:, :1], output_state=True)
    with pytest.raises(ValueError, match="it cannot be updated in place"):
        layer.advance(x[:, 1], state)


def test_in_place_without_a_kernel() -> None:

    layer = pipeline.compile("based").layer(16)
    x = torch.randn(2, 6, 16)
    with torch.no_grad():
        expected, last = layer(x, output_state=True)
        _, state = layer(x[:, :1], output_state=True)
        places = {n: s.data_ptr() for n, s in state.items()}
        y = torch.stack([layer.advance(x_t, state) for x_t in x[:, 1:].unbind(1)], 1)
    torch.testing.assert_close(y, expected[:, 1:], rtol=1e-5, atol=1e-5)
    assert places == {n: s.data_ptr() for n, s in state.items()}
    torch.testing.assert_close(state, dict(last), rtol=1e-5, atol=1e-5)
