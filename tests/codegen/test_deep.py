"""Memories of layers: every way in which their matrices may move, in both forms, and bad input."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conformance import Case, Sizes, agree, beginning, compiled, inputs, run, weighed

from mnemic.errors import InvalidSpec

FOLDER = Path(__file__).parents[1] / "data/vectors"

ANCHOR: Mapping[str, Any] = {"anchor": {"chunk": 8}}
DECAY = {"decay": "token"}
MLP = {"kind": "mlp", "residual": False}
NORMED = {"kind": "mlp", "norm": True}
THETA = {"method": "momentum", "rate": "token", "momentum": "token"}
MUON = {"method": "muon", "rate": "token", "momentum": "token"}
ADAM = {"method": "adam", "rate": "token"}
MEANS = {**ADAM, "momentum": "token", "beta2": "token"}
RATE = {"rate": "token"}
WINDOW = {"window": 3, "weights": "window"}
NORM_OF = {"kind": "huber", "over": "norm", "delta": "token"}
OWN = "x*sigmoid(2*x) + exp(-x**2)"

L2: dict[str, dict[str, Any]] = {
    "three layers": {"memory": {**NORMED, "depth": 3}, "optimizer": {**RATE, **ANCHOR}},
    "three layers by token": {"memory": {**NORMED, "depth": 3}, "optimizer": RATE},
    "a kinked activation": {
        "memory": {**MLP, "activation": "relu"}, "optimizer": {**RATE, **ANCHOR},
    },
    "an activation and a loss of one's own": {
        "memory": {**MLP, "activation": OWN}, "bias": {"expr": "log(cosh(e))"},
        "optimizer": {**RATE, **ANCHOR},
    },
    "a gated memory": {
        "memory": {"kind": "glu", "activation": "sigmoid", "norm": True}, "features": "elu",
        "bias": {"kind": "lp", "p": 3}, "retention": DECAY, "optimizer": {**RATE, **ANCHOR},
    },
    "the decay before the step": {
        "memory": MLP, "retention": {"decay": "token", "order": "before"}, "optimizer": RATE,
    },
    "Muon by token": {"memory": NORMED, "optimizer": MUON},
    "Muon of a matrix": {"optimizer": {"method": "muon", "rate": "token"}},
    "Muon of a matrix at an anchor": {"retention": DECAY, "optimizer": {**MUON, **ANCHOR}},
    "Muon under the dot loss at an anchor": {
        "bias": "dot", "retention": DECAY, "optimizer": {**MUON, **ANCHOR},
    },
    "Muon of a norm under the dot loss": {
        "memory": {**NORMED, "depth": 1}, "bias": "dot", "optimizer": {**MUON, **ANCHOR},
    },
    "Muon of a held matrix": {
        "bias": "dot", "retention": DECAY, "optimizer": {**MUON, "every": 4},
    },
    "a held matrix": {"retention": DECAY, "optimizer": {**RATE, "every": 4}},
    "a held matrix with momentum": {"retention": DECAY, "optimizer": {**THETA, "every": 4}},
    "held for less than the anchor": {
        "memory": MLP, "retention": DECAY, "optimizer": {**MUON, "every": 2, **ANCHOR},
    },
    "held for more than the anchor": {
        "memory": MLP, "retention": DECAY,
        "optimizer": {"method": "muon", "rate": "token", "every": 16, **ANCHOR},
    },
    "the rate outside": {
        "memory": MLP, "retention": DECAY,
        "optimizer": {"method": "muon", "rate": "token", "rate_at": "outside", "every": 4},
    },
    "the rate outside at every token": {
        "memory": MLP, "retention": DECAY, "optimizer": {**MUON, "rate_at": "outside", **ANCHOR},
    },
    "Muon of a window": {
        "memory": MLP, **WINDOW, "retention": DECAY, "optimizer": {**MUON, **ANCHOR},
    },
    "a held memory of a window": {
        "memory": MLP, "window": 3, "weights": "token", "retention": DECAY,
        "optimizer": {**RATE, "every": 4},
    },
    "a window longer than the chunk": {
        "memory": MLP, "window": 19, "weights": "window", "retention": DECAY,
        "optimizer": {**THETA, **ANCHOR},
    },
    "a window whose loss has a coefficient": {
        "memory": MLP, "bias": NORM_OF, **WINDOW, "retention": DECAY,
        "optimizer": {**THETA, **ANCHOR},
    },
    "Muon of such a window": {
        "memory": MLP, "bias": NORM_OF, **WINDOW, "retention": DECAY,
        "optimizer": {**MUON, **ANCHOR},
    },
    "a window by token": {"memory": MLP, **WINDOW, "retention": DECAY, "optimizer": RATE},
    "a dot loss of a window by token": {
        "memory": MLP, "bias": "dot", "window": 3, "retention": DECAY, "optimizer": RATE,
    },
    "Adam by token": {"memory": NORMED, "optimizer": MEANS},
    "Adam of a matrix": {"optimizer": ADAM},
    "Adam of a matrix at an anchor": {"retention": DECAY, "optimizer": {**MEANS, **ANCHOR}},
    "Adam with numbers": {
        "memory": MLP, "optimizer": {**ADAM, "rate": 0.1, "momentum": 0.9, **ANCHOR},
    },
    "Adam that forgets every square": {
        "memory": MLP, "optimizer": {**ADAM, "momentum": 0, "beta2": 0, **ANCHOR},
    },
    "Adam of a gated memory": {
        "memory": {"kind": "glu", "norm": True}, "retention": DECAY,
        "optimizer": {**MEANS, "epsilon": 0.01, **ANCHOR},
    },
    "Adam of a window": {
        "memory": MLP, **WINDOW, "retention": DECAY, "optimizer": {**MEANS, **ANCHOR},
    },
    "Adam of a window whose loss has a coefficient": {
        "memory": MLP, "bias": NORM_OF, **WINDOW, "optimizer": {**MEANS, **ANCHOR},
    },
    "Adam of a window by token": {
        "memory": MLP, "window": 3, "weights": "token", "optimizer": MEANS,
    },
    "Adam of weighted pairs": {
        "bias": "dot", "weights": "token", "optimizer": {**MEANS, "beta2": 0.9, **ANCHOR},
    },
    "Adam after the decay": {
        "memory": MLP, "retention": {"decay": "token", "order": "before"}, "optimizer": MEANS,
    },
    "Adam in micro steps": {
        "memory": MLP, "retention": DECAY, "optimizer": {**MEANS, "micro_steps": 2, **ANCHOR},
    },
    "Adam in inner steps": {"retention": DECAY, "optimizer": {**MEANS, "inner_steps": 3}},
    "Adam and a ridge": {
        "memory": MLP, "retention": {"global": {"l2": 0.3}}, "optimizer": {**MEANS, **ANCHOR},
    },
    "Adam and norms": {
        "memory": MLP, "retention": {"normalize": "columns", **DECAY},
        "optimizer": {**MEANS, **ANCHOR},
    },
    "Adam read before the write": {
        "retention": DECAY, "optimizer": {**MEANS, **ANCHOR}, "readout": {"memory": "before"},
    },
    "norms by token": {
        "memory": MLP, "retention": {"normalize": "columns"}, "optimizer": RATE,
    },
    "norms at an anchor": {
        "memory": MLP, "retention": {"normalize": "columns", **DECAY},
        "optimizer": {**RATE, **ANCHOR},
    },
    "norms under a held memory": {
        "memory": MLP, "retention": {"normalize": "rows"},
        "optimizer": {**RATE, "every": 4, **ANCHOR},
    },
    "norms over a shorter anchor": {
        "memory": MLP, "retention": {"normalize": "rows"},
        "optimizer": {**RATE, "every": 8, "anchor": {"chunk": 4}},
    },
    "inner steps": {
        "memory": MLP, "retention": DECAY, "optimizer": {**RATE, "inner_steps": 3},
    },
    "micro steps": {
        "memory": MLP, "retention": DECAY, "optimizer": {**RATE, "micro_steps": 2, **ANCHOR},
    },
    "a prox by token": {
        "memory": MLP, "retention": {"global": {"elastic": {"l1": 0.05, "l2": 0.1}}},
        "optimizer": RATE,
    },
    "a prox at an anchor": {
        "memory": MLP, "retention": {"global": {"elastic": {"l1": 0.05, "l2": 0.1}}},
        "optimizer": {**RATE, **ANCHOR},
    },
    "a prox of a memory held for longer than the anchor": {
        "memory": MLP, "retention": {"global": {"elastic": {"l1": 0.05, "l2": 0.1}}},
        "optimizer": {**RATE, "every": 8, "anchor": {"chunk": 4}},
    },
    "a ridge": {
        "memory": MLP, "retention": {"global": {"l2": 0.3}}, "optimizer": {**RATE, **ANCHOR},
    },
    "a ridge of a held memory": {
        "memory": MLP, "retention": {"global": {"l2": 0.3}}, "optimizer": {**RATE, "every": 4},
    },
    "a simplex of every row": {
        "memory": NORMED, "optimizer": {**RATE, **ANCHOR},
        "retention": {
            "local": "kl", **DECAY,
            "constraint": {"kind": "simplex", "scale": "learned", "over": "rows"},
        },
    },
    "read at the anchor": {
        "memory": MLP, "retention": DECAY, "optimizer": {**RATE, **ANCHOR},
        "readout": {"memory": "anchor"},
    },
    "read before the write": {
        "memory": MLP, "retention": DECAY, "optimizer": {**THETA, **ANCHOR},
        "readout": {"memory": "before"},
    },
    "read before the write, through a link": {
        "memory": MLP, "retention": {"view": "ftrl", **DECAY, "global": {"lq": 1.5}},
        "optimizer": {**RATE, **ANCHOR}, "readout": {"memory": "before"},
    },
    "a simplex whose size differs by token": {
        "memory": MLP, "optimizer": {**RATE, **ANCHOR},
        "retention": {"local": "kl", "constraint": {"kind": "simplex", "scale": "token"}},
    },
    "one matrix, soft thresholds that differ by token": {
        "memory": "linear", "optimizer": {**RATE, **ANCHOR},
        "retention": {"view": "ftrl", "global": {"elastic": {"l1": "token", "l2": 0.1}}},
    },
    "thresholds that differ by token, where no gradient sees the memory": {
        "bias": "dot", "memory": "linear", "optimizer": RATE,
        "retention": {"view": "ftrl", "global": {"elastic": {"l1": "token", "l2": 0.1}}},
    },
    "one layer with a norm": {
        "memory": {**NORMED, "depth": 1}, **WINDOW, "retention": DECAY,
        "optimizer": {**THETA, **ANCHOR}, "readout": {"memory": "before"},
    },
    "a chain of held memories": {
        "memory": {"chain": [{"kind": "linear"}, MLP], "every": [4, 8]}, "retention": DECAY,
        "optimizer": RATE,
    },
    "a chain that moves by token": {
        "memory": {"chain": [{"kind": "mlp"}, {"kind": "glu"}], "every": [1, 4]},
        "retention": DECAY, "optimizer": RATE,
    },
    "one held layer with a norm": {
        "memory": {**NORMED, "depth": 1}, "optimizer": {**RATE, "every": 4},
    },
}  # fmt: skip
"""Specs of the squared error (unless they say otherwise), by what is special about them."""


FIRST = {
    "three layers by token", "an activation and a loss of one's own", "a gated memory",
    "the decay before the step", "Muon of a matrix at an anchor", "a held matrix with momentum",
    "held for more than the anchor", "the rate outside", "a held memory of a window",
    "a window whose loss has a coefficient", "Adam of a gated memory", "Adam in micro steps",
    "norms under a held memory", "inner steps", "a ridge of a held memory",
    "a prox of a memory held for longer than the anchor", "a simplex of every row",
    "read at the anchor", "read before the write, through a link",
    "one matrix, soft thresholds that differ by token", "one layer with a norm",
    "a chain that moves by token",
}  # fmt: skip
"""Those of the first test tier: each layer, method, interval, window, link and read-out once."""

TITLES = [x if x in FIRST else pytest.param(x, marks=pytest.mark.full) for x in L2]


def spec(title: str) -> dict[str, Any]:
    """A spec of the table."""
    return {"mnemic": 1, "name": "deep", "bias": "l2", **L2[title]}


@cache
def by_token(title: str) -> Any:
    """The recurrent form's run."""
    case = compiled(spec(title))
    return case, inputs(case, 37), run(case, inputs(case, 37), "recurrent")


@pytest.mark.some(8)
@pytest.mark.parametrize("title", TITLES)
def test_forms_and_pieces_agree(title: str) -> None:
    case, arguments, expected = by_token(title)
    chunk = "chunk" if "chunk" in case.forms else "recurrent"
    agree(run(case, arguments, ((chunk, 7), ("recurrent", 5), (chunk, 25))), expected, 1e-8)
    if chunk == "chunk":
        agree(run(case, arguments, "chunk"), expected, 1e-8)


@pytest.mark.some(8)
@pytest.mark.parametrize("title", TITLES)
def test_an_anchor_is_what_gives_a_chunk_form(title: str) -> None:
    case = compiled(spec(title))
    still = min(max(case.rule.anchor, m.every) for m in case.rule.network.matrices)
    assert ("chunk" in case.forms) == (still > 1)


@pytest.mark.some(2)
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_a_chunk_of_one_is_by_token(chunk: int) -> None:
    """The anchor changes the numbers, unless it is a token."""
    told = {**spec("three layers"), "optimizer": {"rate": "token", "anchor": {"chunk": chunk}}}
    case, other = compiled(told), compiled(spec("three layers by token"))
    arguments = inputs(case, 11)
    found = run(case, arguments, "recurrent")
    expected = run(other, arguments, "recurrent")
    same = torch.allclose(found.out, expected.out, rtol=0, atol=1e-12)
    assert same == (chunk == 1)


# -- the vectors -----------------------------------------------------------------------------

VECTORS: dict[str, dict[str, Any]] = {
    "titans": {"extends": "titans", "optimizer": {"anchor": {"chunk": 8}}},
    "titans-token": {"extends": "titans", "optimizer": {"anchor": "token"}},
    "yaad": {"extends": "yaad", "optimizer": {"anchor": {"chunk": 8}}},
    "moneta-token": {"extends": "moneta", "optimizer": {"anchor": "token"}},
}


@pytest.mark.some(2)
@pytest.mark.parametrize("name", VECTORS)
def test_expected_outputs(name: str) -> None:
    case = compiled({"mnemic": 1, "name": name, **VECTORS[name]})
    told = {n: torch.from_numpy(x) for n, x in np.load(FOLDER / f"{name}.npz").items()}
    expected = told.pop("y")
    params = {n[7:]: told.pop(n) for n in list(told) if n.startswith("params.")}
    for form in case.forms:
        found, _ = case.generated(**told, params=params, form=form)
        assert (found - expected).abs().max() <= 1e-9


# -- bad input -------------------------------------------------------------------------------


def refused(case: Case, **options: Any) -> str:
    """What the operator says to arguments and ``params``."""
    arguments = inputs(case, 3, sizes=Sizes(key=4, value=4))
    with pytest.raises(ValueError, match=case.generated.name) as caught:
        case.generated(**arguments, **options)
    return str(caught.value)


def test_initial_duals_that_are_missing_or_wrong() -> None:
    case = compiled("titans")
    arguments = inputs(case, 3)
    good = beginning(case, arguments["k"], arguments["v"])
    assert refused(case) == (
        "titans: params: missing W1 [H, v, m2]; W2 [H, m2, D] (the memory's start)"
    )
    assert "params: read 'W3', allowed: W1, W2" in refused(case, params={**good, "W3": good["W1"]})
    assert "missing W2 [H, m2, D]" in refused(case, params={"W1": good["W1"]})
    narrow = {**good, "W2": good["W2"][:, :3]}
    assert "params['W2']: read shape [2, 3, 4], expected [2, 5, 4]" in refused(case, params=narrow)
    one_head = {**good, "W1": good["W1"][:1]}
    assert "params['W1']: read shape [1, 4, 5], expected [2, 4, m2]" in refused(
        case, params=one_head
    )


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"retention": {"decay": "channel"}, "memory": MLP}, "a decay by channel on a memory of"),
        ({"retention": {"normalize": "rows"}, "optimizer": THETA}, "that starts at zero"),
        (
            {"memory": MLP, "optimizer": {**RATE, "every": 6, "anchor": {"chunk": 4}}},
            "no multiple of a shorter one",
        ),
    ],
)
def test_what_layers_do_not_do_is_refused(told: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        assert compiled({"mnemic": 1, "name": "deep", "bias": "l2", **told}).operator


# -- layers behind a kernel ------------------------------------------------------------------

BEHIND: dict[str, dict[str, Any]] = {
    "by token": {"memory": MLP, "retention": DECAY, "optimizer": RATE},
    "at an anchor": {"memory": NORMED, "retention": DECAY, "optimizer": {**RATE, **ANCHOR}},
    "momentum": {"memory": MLP, "retention": DECAY, "optimizer": {**THETA, **ANCHOR}},
    "momentum by token": {"memory": MLP, "retention": DECAY, "optimizer": THETA},
    "a gated memory": {
        "memory": {"kind": "glu", "residual": False}, "retention": DECAY,
        "optimizer": {**THETA, **ANCHOR},
    },
    "a window": {"memory": MLP, **WINDOW, "retention": DECAY, "optimizer": {**RATE, **ANCHOR}},
    "a window by token": {"memory": MLP, **WINDOW, "retention": DECAY, "optimizer": RATE},
    "a window whose loss has a coefficient": {
        "memory": MLP, "bias": NORM_OF, **WINDOW, "retention": DECAY,
        "optimizer": {**THETA, **ANCHOR},
    },
    "three layers and a dot loss": {
        "memory": {**NORMED, "depth": 3}, "bias": "dot", "optimizer": {**RATE, **ANCHOR},
    },
    "a ridge": {
        "memory": MLP, "retention": {"global": {"l2": 0.3}}, "optimizer": {**THETA, **ANCHOR},
    },
    "read at the anchor": {
        "memory": MLP, "optimizer": {**RATE, **ANCHOR}, "readout": {"memory": "anchor"},
    },
    "read before the write": {
        "memory": MLP, "retention": DECAY, "optimizer": {**THETA, **ANCHOR},
        "readout": {"memory": "before"},
    },
    "micro steps": {
        "memory": MLP, "retention": DECAY, "optimizer": {**RATE, "micro_steps": 2, **ANCHOR},
    },
}  # fmt: skip


BOTH = [x if x in ("by token", "a gated memory", "a window")
        else pytest.param(x, marks=pytest.mark.full) for x in BEHIND]  # fmt: skip
"""Those of the first tier are by token and by chunk, of two layers and gated, of one pair and more;
the others run in pieces there."""


@pytest.mark.parametrize("title", BOTH)
def test_a_kernel_is_its_features(title: str) -> None:
    """κ(s) = s² against the self-tensor k ⊗ k, whose layer starts at zero: no code is shared."""
    told = {"mnemic": 1, "name": "behind", "bias": "l2", **BEHIND[title]}
    kernel = compiled({**told, "features": {"kernel": "s**2"}})
    finite = compiled({**told, "features": {"kind": "polynomial", "degree": 2, "mode": "power"}})
    arguments = inputs(kernel, 29, sizes=Sizes(key=4, value=4))
    arguments = {**arguments, "v": 3 * arguments["v"]}
    params = beginning(kernel, arguments["k"], arguments["v"])
    whole = beginning(finite, arguments["k"], arguments["v"])
    zeros = {n: params.get(n, torch.zeros_like(x)) for n, x in whole.items()}
    expected = differentiated(finite, arguments, zeros, "recurrent")
    for form in kernel.forms:
        found = differentiated(kernel, arguments, params, form)
        for name, x in found.items():
            assert (x - expected[name]).abs().max() <= 1e-9 * (1 + x.abs().max()), (form, name)


def differentiated(case: Case, arguments: Any, params: Any, form: str) -> dict[str, torch.Tensor]:
    """The outputs and every gradient, through the outputs alone."""
    leaves = {n: x.clone().requires_grad_() for n, x in {**arguments, **params}.items()}
    own = {n: leaves[n] for n in params}
    out, _ = case.generated(**{n: leaves[n] for n in arguments}, params=own, form=form)
    names = [n for n in leaves if leaves[n].requires_grad]
    raw = torch.autograd.grad(weighed(out), [leaves[n] for n in names], allow_unused=True)
    grads = {n: torch.zeros_like(leaves[n]) if g is None else g
             for n, g in zip(names, raw, strict=True)}  # fmt: skip
    return {"out": out.detach(), **grads}


@pytest.mark.some(5)
@pytest.mark.parametrize("title", BEHIND)
def test_pieces_behind_a_kernel(title: str) -> None:
    told = {"mnemic": 1, "name": "behind", "bias": "l2", **BEHIND[title]}
    case = compiled({**told, "features": "exponential"})
    arguments, form = inputs(case, 29), case.forms[-1]
    expected = run(case, arguments, "recurrent")
    agree(run(case, arguments, ((form, 7), ("recurrent", 5), (form, 17))), expected, 1e-8)
