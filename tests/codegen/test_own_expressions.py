"""Rules that nobody listed: each compiles and its forms agree, or it is refused with a message."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from conformance import (
    Case,
    Result,
    Sizes,
    Tensors,
    agree,
    as_interpreted,
    close,
    compiled,
    error,
    inputs,
    interpreted,
    run,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tally import Tally, mended
from tiers import examples

from mnemic.compiler.oracle.stated import stated
from mnemic.errors import InvalidSpec

Spec = dict[str, Any]

T = 11
WILD = 1e5
"""Beyond this a rule has left its stability bound, and nothing is compared."""


def conforms(spec: Mapping[str, Any], tolerance: float = 1e-7) -> None:
    """Compile a spec and compare its forms with each other and with the interpreter."""
    assert compared(spec, tolerance), "left its stability bound: nothing was compared"


def compared(spec: Mapping[str, Any], tolerance: float = 1e-7) -> bool:
    """Compare the forms and the interpreter; return whether that was over all ``T`` tokens.

    A rule that leaves its stability bound is compared over the tokens before it does, and the
    interpreter has to leave it with the recurrence.
    """
    case = compiled(spec)
    drawn = inputs(case, T)
    for tokens in (T, 6, 3, 1):
        arguments = {n: x[:, :tokens] for n, x in drawn.items()}
        expected, read = run(case, arguments, "recurrent"), interpreted(case, arguments)
        ends = [expected.out, *as_interpreted(expected.states).values()]
        if any(wild(x) for x in ends):
            assert any(wild(x) for x in (read[0], *read[1].values())), (
                "only the recurrence diverges"
            )
            continue
        assert error(expected.out, read[0]) <= tolerance
        states = as_interpreted(expected.states)
        close(states, {n: read[1][n] for n in states}, tolerance)
        if all(largest(x) <= WILD for x in expected.gradients.values()):
            assert all(torch.isfinite(x).all() for _, x in expected.parts())
            forms_agree(case, arguments, expected, tolerance)
            return tokens == T
    return False


def forms_agree(case: Case, arguments: Tensors, expected: Result, tolerance: float) -> None:
    """Compare chunks of two sizes, and both forms on cut sequences, with the recurrence."""
    tokens = expected.out.shape[1]
    early, third, half = tokens // 4 + 1, tokens // 3 + 1, (tokens + 1) // 2
    whole = tokens == 1
    if "chunk" in case.forms:
        for size in (4, 16):
            agree(run(case, arguments, "chunk", chunk_size=size), expected, tolerance)
        for cut in (
            ()
            if whole
            else (
                (("chunk", half), ("recurrent", tokens - half)),
                (("chunk", early), ("chunk", tokens - early)),
            )
        ):
            agree(run(case, arguments, cut), expected, tolerance)
    if not whole:
        cut = (("recurrent", third), ("recurrent", tokens - third))
        agree(run(case, arguments, cut), expected, tolerance)


def wild(x: torch.Tensor) -> bool:
    """Return whether numbers are beyond ``WILD``, or are none."""
    return bool(x.numel()) and not bool((x.abs() <= WILD).all())


def largest(x: torch.Tensor) -> float:
    """Return the largest finite magnitude: what overflows in a few tokens was large before."""
    return float(x[x.isfinite()].abs().max()) if x.isfinite().any() else 0.0


# -- losses ----------------------------------------------------------------------------------

DELTA = {"delta": {"from": "input", "activation": "softplus"}}

LOSSES: dict[str, Spec] = {
    text: {"bias": {"expr": text}}
    for text in (
        "log(cosh(e))", "sqrt(1+e**2)-1", "abs(e)**2.5", "n**3", "log(1+n**2)", "sqrt(1+n**2)",
        "-v*log(sigmoid(y))-(1-v)*log(1-sigmoid(y))", "-y*v + e**2/10", "e**4/4", "exp(-e**2)",
        "softplus(y)-v*y", "(y-v)**2/2 + y**2/20", "y**4/8-y*v", "cosh(e)-1", "-v*y/(1+y**2)",
        "where(n<=1, e**2/2, abs(e))", "e*atan(e)-log(1+e**2)/2", "abs(e)", "-v*tanh(y)",
        "max(abs(e)-1/2, 0)**2/2", "e**2/2 + sin(e)/4", "relu(1 - v*y)", "erf(e)*e",
    )
} | {
    text: {"bias": {"expr": text}, "coefficients": DELTA}
    for text in (
        "where(abs(e)<=delta, e**2/2, delta*(abs(e)-delta/2))", "max(abs(e)-delta, 0)**2/2",
        "delta**2*log(cosh(e/delta))", "where(n<=delta, n**2/2, delta*(n-delta/2))",
    )
}  # fmt: skip

MOMENTUM = {"method": "momentum", "rate": "token", "momentum": "token"}

SETTINGS: dict[str, Spec] = {
    "online": {"optimizer": {"rate": "token"}},
    "gated before": {
        "retention": {"decay": "token", "order": "before"},
        "optimizer": {"rate": "token"},
    },
    "gated after": {"retention": {"decay": "token"}, "optimizer": {"rate": "token"}},
    "by channel": {
        "retention": {"decay": "channel", "order": "before"},
        "optimizer": {"rate": "token"},
    },
    "momentum": {"retention": {"decay": "token"}, "optimizer": MOMENTUM},
    "momentum by channel": {
        "retention": {"decay": "channel", "order": "before"},
        "optimizer": MOMENTUM,
    },
    "window": {"window": 3, "optimizer": {"rate": "token"}},
    "window of tokens": {
        "window": 3, "weights": "token", "retention": {"decay": "token", "order": "before"},
        "optimizer": {"rate": "token"},
    },
    "window of gates by channel": {
        "window": 4, "weights": "window", "retention": {"decay": "channel"},
        "optimizer": {"rate": "token"},
    },
    "window, momentum, channel": {
        "window": 3, "weights": "window", "retention": {"decay": "channel", "order": "before"},
        "optimizer": MOMENTUM,
    },
    "anchor": {
        "retention": {"decay": "token"}, "optimizer": {"rate": "token", "anchor": {"chunk": 8}},
    },
    "anchor and window": {
        "window": 3, "weights": "window", "retention": {"decay": "channel"},
        "optimizer": {**MOMENTUM, "anchor": {"chunk": 8}},
    },
    "micro-steps": {
        "retention": {"decay": "token", "order": "before"},
        "optimizer": {"rate": "token", "micro_steps": 2},
    },
    "inner steps, momentum": {
        "retention": {"decay": "channel"}, "optimizer": {**MOMENTUM, "inner_steps": 2},
    },
    "normalized": {
        "retention": {"decay": "token"},
        "optimizer": {"rate": {"from": "input", "activation": "sigmoid", "normalized": True}},
    },
    "keys": {
        "keys": {"predict": "own"}, "retention": {"decay": "channel", "order": "before"},
        "optimizer": {"rate": "token"},
    },
}  # fmt: skip


PAIRS = [
    (loss, setting)
    for i, loss in enumerate(LOSSES) for j, setting in enumerate(SETTINGS) if (i + j) % 3 == 0
]  # fmt: skip
"""A third of all: every loss and every setting several times. The fuzz command draws others."""


@pytest.mark.some(6)
@pytest.mark.few
@pytest.mark.parametrize(("loss", "setting"), PAIRS)
def test_losses_of_ones_own(loss: str, setting: str) -> None:
    conforms({"name": "own", **LOSSES[loss], **SETTINGS[setting]})


@pytest.mark.few
@pytest.mark.parametrize("text", ["x*sigmoid(x)", "exp(x)", "tanh(x) + 1", "relu(x)**2", "x**3"])
@pytest.mark.parametrize("bias", ["dot", "l2", {"expr": "log(cosh(e))"}], ids=str)
def test_features_of_ones_own(bias: object, text: str) -> None:
    spec = {"name": "own", "bias": bias, "features": {"expr": text}}
    for decay in ("token", "channel"):
        conforms({**spec, "retention": {"decay": decay}, "optimizer": {"rate": "token"}})


GENERATORS = (
    "w*log(w)-w", "cosh(w)", "w**4/4+w**2/2", "w*log(w)+(1-w)*log(1-w)", "w**2/2 + exp(w)",
)  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.few
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("view", ["ftrl", "learning-retaining"])
@pytest.mark.parametrize("generator", GENERATORS)
def test_generators_of_ones_own(generator: str, view: str, order: str) -> None:
    retention = {"local": {"bregman": generator}, "view": view, "decay": "token", "order": order}
    spec = {"name": "own", "bias": "l2", "retention": retention, "optimizer": {"rate": "token"}}
    conforms(spec)
    if order == "after":
        conforms({**spec, "optimizer": {"rate": "token", "anchor": {"chunk": 8}}})
        conforms({**spec, "window": 3, "bias": {"expr": "log(cosh(e))"}})


@pytest.mark.some(2)
@pytest.mark.few
@pytest.mark.parametrize("over", ["all", "rows"])
@pytest.mark.parametrize(
    "generator",
    ["-log(w)", "1/w", "-sqrt(w)", "w**1.5", "w**3", "w**2.5", "exp(w)", "w**2/2 - log(w)"],
)
def test_generators_on_a_simplex_solve_the_problem_as_written(generator: str, over: str) -> None:
    """Also where the dual leaves the range of R′, on either side."""
    retention = {"local": {"bregman": generator},
                 "constraint": {"kind": "simplex", "over": over}}  # fmt: skip
    spec = {"name": "own", "bias": "l2", "retention": retention, "optimizer": {"rate": "token"}}
    case = compiled(spec)
    arguments = inputs(case, 8, sizes=Sizes(1, 8, 1, 4, 3))
    rest = {n: 4 * x for n, x in arguments.items() if n not in "qkv"}
    out, states = case.generated(**{**arguments, **rest}, output_final_state=True)
    expected = stated(case.rule.problem, *(arguments[n] for n in "qkv"), rest)
    assert error(out, expected) <= 1e-8
    memory = states["W"]
    assert bool((memory >= 0).all())
    total = memory.sum((-2, -1) if over == "all" else -1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-9, atol=0)


@pytest.mark.some(2)
@pytest.mark.few
@pytest.mark.parametrize("constraint", ["simplex", {"kind": "simplex", "over": "rows"}, "none"])
@pytest.mark.parametrize("f", ["x**3/3", "(x-1)**2", "x**2/2 + x*log(x)", "-log(x)", "x**1.5"])
def test_divergences_of_ones_own(f: str, constraint: object) -> None:
    retention = {"local": {"f-divergence": f}, "constraint": constraint}
    spec = {"name": "own", "bias": "l2", "retention": retention, "optimizer": {"rate": "token"}}
    if (f, constraint) == ("-log(x)", "none"):
        with pytest.raises(InvalidSpec, match="stays within"):
            compiled(spec)
        return
    conforms(spec)


ROLES: dict[str, Spec] = {
    "erase by gates": {"keys": {"erase": "a*k"}},
    "write by gates": {"keys": {"write": "k*a"}},
    "three keys": {"keys": {"predict": "own", "erase": "own", "write": "own"}},
    "removal": {"keys": {"predict": "own", "erase": "a*predict", "value": "c*v"}},
    "value alone": {"keys": {"value": "c*v"}},
    "written as predicted": {"keys": {"predict": "own", "write": "predict"}},
}


@pytest.mark.few
@pytest.mark.parametrize("decay", ["token", "channel"])
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("method", ["gd", "momentum", "on write", "window"])
@pytest.mark.parametrize("role", ROLES)
def test_keys_of_ones_own(role: str, method: str, order: str, decay: str) -> None:
    text = str(ROLES[role])
    gates = {"a": {"from": "input", "per": "key", "activation": "sigmoid"}} if "a*" in text else {}
    gates |= {"a": {"from": "input", "per": "key", "activation": "sigmoid"}} if "*a" in text else {}
    gates |= {"c": {"from": "input", "per": "value"}} if "c*" in text else {}
    momentum: Spec = {"from": "input", "on": "write" if method == "on write" else "gradient"}
    optimizer: Spec = {"rate": "token"}
    if method in ("momentum", "on write"):
        optimizer |= {"method": "momentum", "momentum": momentum}
    spec: Spec = {
        "name": "own", "bias": "l2", **ROLES[role], "coefficients": gates,
        "retention": {"decay": decay, "order": order}, "optimizer": optimizer,
    }  # fmt: skip
    if method != "window":
        conforms(spec)
        return
    windowed = {**spec, "window": 3, "weights": "window"}
    if gates:
        with pytest.raises(InvalidSpec, match="a window of keys or values with coefficients"):
            compiled(windowed)
        return
    conforms(windowed)


# -- drawn combinations ----------------------------------------------------------------------

TOKEN: Spec = {"from": "input", "activation": "sigmoid"}

BIASES = st.sampled_from(
    [
        "dot", "l2", "huber", "robust", {"kind": "lp", "p": 3}, {"kind": "lp", "p": 2.5},
        {"kind": "lp", "p": 1, "smooth": 8}, {"kind": "huber", "delta": "token"},
        {"kind": "huber", "delta": "token", "over": "norm"},
        {"kind": "huber", "delta": "token", "over": "mixture"},
        {"kind": "huber", "delta": {"from": "input", "per": "value"}},
        {"kind": "robust", "Delta": "token"},
        *(spec["bias"] for text, spec in LOSSES.items() if "delta" not in text),
    ]
)  # fmt: skip
FEATURES = st.sampled_from(
    [
        "identity", "identity", "identity", "elu", "relu", "softmax", {"expr": "x*sigmoid(x)"},
        {"expr": "exp(x)"}, {"kind": "polynomial", "degree": 2}, {"kind": "dpfp", "nu": 1},
        {"kind": "cosine", "length": 64}, {"kind": "random", "features": 6},
    ]
)  # fmt: skip
DECAYS = st.sampled_from([1.0, 0.9, "token", "channel", "learned", "outer", "1 - eta/2"])
LOCALS = st.sampled_from(
    [
        *["l2"] * 8, "kl", *({"bregman": text} for text in GENERATORS),
        {"f-divergence": "x**3/3"}, {"f-divergence": "chi2"}, {"f-divergence": "kl"},
    ]
)  # fmt: skip
GLOBALS = st.sampled_from(
    [*["none"] * 4, {"l2": 0.1}, {"entropy": 0.1}, {"elastic": {"l1": 0.05, "l2": 0}}, {"lq": 1.5}]
)
CONSTRAINTS = st.sampled_from(
    [
        *["none"] * 4, "simplex", {"kind": "simplex", "over": "rows"},
        {"kind": "simplex", "scale": "learned"}, {"kind": "ball", "radius": 0.5},
    ]
)  # fmt: skip
VIEWS = st.sampled_from(["ftrl", "learning-retaining"])
ORDERS = st.sampled_from(["before", "after"])


@st.composite
def retentions(draw: st.DrawFn) -> Spec:
    """A retention."""
    found: Spec = {"decay": draw(DECAYS), "order": draw(ORDERS), "view": draw(VIEWS)}
    found |= {"local": draw(LOCALS), "global": draw(GLOBALS), "constraint": draw(CONSTRAINTS)}
    if found["decay"] == "outer":
        found["row_decay"] = draw(st.sampled_from([TOKEN, {"from": "input", "per": "value"}]))
    if draw(st.integers(0, 9)) == 0:
        found["phase"] = {"from": "input", "per": "key"}
    return found


@st.composite
def optimizers(draw: st.DrawFn) -> Spec:
    """An optimizer."""
    rates = ["token", "token", {**TOKEN, "normalized": True}]
    found: Spec = {"rate": draw(st.sampled_from(rates))}
    method = draw(st.sampled_from(["gd", "gd", "momentum", "flow"]))
    if method == "momentum":
        thetas = ["token", "learned", 0.5, {"from": "input", "on": "write"}]
        found["momentum"] = draw(st.sampled_from(thetas))
    if method != "gd":
        found["method"] = method
    steps: Spec = draw(st.sampled_from([{}, {}, {"micro_steps": 2}, {"inner_steps": 2}]))
    anchor: Spec = draw(st.sampled_from([{}, {}, {"anchor": {"chunk": 8}}]))
    return {**found, **steps, **anchor}


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """A point of the design space, of which many have no meaning."""
    found: Spec = {"name": "drawn", "bias": draw(BIASES), "features": draw(FEATURES)}
    found |= {"retention": draw(retentions()), "optimizer": draw(optimizers())}
    headed = {"kind": "mlp", "depth": 1, "norm": True, "residual": draw(st.booleans())}
    found["memory"] = draw(st.sampled_from([*["linear"] * 6, "diagonal", headed]))
    if draw(st.booleans()):
        width = draw(st.sampled_from([1, 3]))
        weights = ["uniform", "token"] + (["window"] if width > 1 else [])
        found |= {"window": width, "weights": draw(st.sampled_from(weights))}
    found["readout"] = {
        "memory": draw(st.sampled_from(["after", "after", "after", "before", "anchor"])),
        "normalizer": draw(st.sampled_from(["none"] * 6 + ["sum", "max1"])),
    }
    if draw(st.integers(0, 9)) == 0:
        found["readout"]["bonus"] = {"from": "parameter", "per": "key"}
    if draw(st.integers(0, 4)) == 0:
        found["keys"] = draw(st.sampled_from([r["keys"] for r in ROLES.values()]))
        text = str(found["keys"])
        gates = {"a": {**TOKEN, "per": "key"}, "c": {**TOKEN, "per": "value"}}
        found["coefficients"] = {
            n: g for n, g in gates.items() if f"{n}*" in text or f"*{n}" in text
        }
    return found


def check_drawn(check: Callable[[Mapping[str, Any]], bool], count: int) -> None:
    """Draw specs, mend them, run a check on each, and demand that most were compared."""
    tally = Tally()

    @given(specs())
    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate],  # a spec reads well unshrunk, and shrinking is slow
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    def drawn(spec: Spec) -> None:
        tally.note(check, mended(spec))

    drawn()
    tally.enough()


@pytest.mark.parametrize("drawn", [examples(15, 5), pytest.param(50, marks=pytest.mark.full)])
def test_drawn_specs(drawn: int) -> None:
    """What is refused as it was drawn says why, and loses what the refusal names."""
    check_drawn(compared, drawn)


# -- what failed once ------------------------------------------------------------------------

ROWS: Spec = {"from": "input", "per": "value"}
OUTER: Spec = {"decay": "outer", "row_decay": ROWS}
HEADED: Spec = {"kind": "mlp", "depth": 1, "norm": True, "residual": True}
PHASE: Spec = {"phase": {"from": "input", "per": "key"}}
ON_WRITE: Spec = {"method": "momentum", "momentum": {"from": "input", "on": "write"}}
NORMALIZED: Spec = {"rate": {**TOKEN, "normalized": True}}
COSH: Spec = {"local": {"bregman": "cosh(w)"}}
BUTTERFLY: Spec = {"bregman": "w**4/4+w**2/2"}
TOKENS: Spec = {"rate": "token"}

FAILED: dict[str, Spec] = {
    "a kink in the norm under a normalised rate": {
        "bias": {"expr": "max(n-1, 0)**2/2"}, "optimizer": NORMALIZED,
    },
    "two terms in the norm under a normalised rate": {
        "bias": {"expr": "max(n-2, 0)**2/2 + 2*(sqrt(1+1.7*n**2)-1)"}, "optimizer": NORMALIZED,
    },
    "an expression that takes minutes to simplify": {
        "bias": {"expr": "0.3*e**2/(1+e**2) + log(cosh(2*e))"}, "optimizer": NORMALIZED,
    },
    "the gradient under order before sees the row decay too": {
        "bias": "huber", "retention": {**OUTER, "order": "before"}, "optimizer": TOKENS,
    },
    "a sequential rule keeps its anchor": {
        "bias": {"expr": "e**4/4"}, "retention": OUTER,
        "optimizer": {**TOKENS, "anchor": {"chunk": 8}},
    },
    "a residual adds the raw key, not its features": {
        "bias": "l2", "features": {"kind": "dpfp", "nu": 1}, "memory": HEADED, "window": 3,
        "weights": "window", "optimizer": {**TOKENS, "anchor": {"chunk": 8}},
    },
    "a norm makes the step of a dot loss see the memory": {
        "bias": "dot", "features": {"expr": "exp(x)"}, "memory": HEADED, "optimizer": TOKENS,
    },
    "momentum on the write blends the written rows alone": {
        "bias": {"expr": "(y-v)**2/2 + y**2/20"}, "features": "softmax", "weights": "token",
        "retention": {"decay": "channel"}, "optimizer": {**TOKENS, **ON_WRITE},
    },
    "momentum by channel before a link": {
        "bias": "dot", "retention": {"decay": "channel", "view": "ftrl", **COSH},
        "optimizer": {**MOMENTUM, "anchor": {"chunk": 8}}, "readout": {"memory": "before"},
    },
    "a fixed decay that the gradient sees": {
        "bias": "huber", "window": 3, "weights": "token",
        "retention": {"decay": 0.9, "order": "before"}, "optimizer": MOMENTUM,
    },
    "a fixed decay in a key": {
        "bias": "dot", "retention": {"decay": 0.9}, "keys": {"write": "1 - alpha"},
        "optimizer": TOKENS,
    },
    "momentum acts at every micro-step": {
        "bias": "l2", "features": "relu", "retention": {"decay": "channel", "order": "before"},
        "optimizer": {**MOMENTUM, "micro_steps": 2},
    },
    "a phase turns once a token, however many steps it takes": {
        "bias": "l2", "retention": {"decay": "token", **PHASE},
        "optimizer": {**TOKENS, "micro_steps": 2},
    },
    "decay by channel under a phase": {
        "bias": "l2", "retention": {"decay": "channel", "order": "before", **PHASE},
        "optimizer": TOKENS,
    },
    "gates of a window on a diagonal memory": {
        "bias": {"expr": "log(cosh(e))"}, "memory": "diagonal", "window": 3, "weights": "window",
        "retention": {"decay": "channel", "order": "before"}, "optimizer": MOMENTUM,
    },
    "an f-divergence without a constraint begins at one": {
        "bias": "l2", "retention": {"local": {"f-divergence": "chi2"}}, "optimizer": TOKENS,
    },
    "a branch that is not taken has no gradient": {
        "bias": {"expr": "n**3"}, "retention": {"local": {"f-divergence": "x**3/3"}},
        "optimizer": TOKENS,
    },
    "a numeric link near the end of its domain": {
        "bias": {"expr": "(y-v)**2/2 + y**2/20"}, "features": {"expr": "exp(x)"},
        "retention": {"global": {"entropy": 0.1}},
        "optimizer": {**TOKENS, "anchor": {"chunk": 8}},
    },
    "a numeric link stays at its kink": {
        "bias": "dot", "optimizer": TOKENS,
        "retention": {**COSH, "global": {"elastic": {"l1": 0.05, "l2": 0}}, "view": "ftrl"},
    },
    "a decay acts on the dual before the gradient sees the memory": {
        "bias": "huber", "features": "relu", "optimizer": TOKENS,
        "retention": {
            "decay": "token", "order": "before", "local": BUTTERFLY, "global": {"entropy": 0.1},
        },
    },
    "a normalised step of a radial loss": {
        "bias": "robust", "retention": {"decay": "channel", "order": "before", **PHASE},
        "optimizer": NORMALIZED, "readout": {"memory": "before"},
    },
    "a read-out before a link": {
        "bias": {"expr": "-v*tanh(y)"}, "window": 3, "readout": {"memory": "before"},
        "retention": {"decay": "token", "view": "ftrl", "constraint": "simplex"},
        "optimizer": {**TOKENS, "anchor": {"chunk": 8}},
    },
}  # fmt: skip
"""Each by what was wrong."""


@pytest.mark.some(5)
@pytest.mark.parametrize("wrong", FAILED)
def test_what_failed_once(wrong: str) -> None:
    conforms({"name": "failed", **FAILED[wrong]})


REFUSED: dict[str, Spec] = {
    "readout.normalizer": {"bias": "l2", "readout": {"normalizer": "sum"}},
    "readout.bonus": {"bias": "l2", "window": 3, "readout": {"bonus": "learned"}},
    "readout.memory": {
        "bias": "l2", "readout": {"memory": "before"}, "optimizer": {"inner_steps": 2},
    },
    "optimizer.anchor": {
        "bias": "l2", "retention": {"local": {"f-divergence": "chi2"}},
        "optimizer": {"anchor": {"chunk": 8}},
    },
    "optimizer.rate": {
        "bias": "dot", "retention": {"decay": "channel"},
        "optimizer": {"rate": {"from": "input", "activation": "exp"}},
    },
    "window": {"bias": "l2", "window": 3, "features": {"kind": "cosine", "length": 64}},
    "keys": {
        "bias": "l2", "window": 3, "keys": {"value": "c*v"},
        "coefficients": {"c": {"from": "input", "per": "value"}},
    },
    "retention.phase": {
        "bias": "l2", "features": {"kind": "dpfp", "nu": 1}, "retention": PHASE,
    },
    "retention.row_decay": {"bias": "dot", "retention": OUTER, "optimizer": MOMENTUM},
    "retention": {
        "bias": "l2",
        "retention": {"local": "kl", "constraint": {"kind": "simplex", "scale": "token"}},
    },
    "memory": {"bias": "robust", "memory": "diagonal"},
}  # fmt: skip


@pytest.mark.parametrize("where", REFUSED)
def test_what_is_not_compiled_yet_is_refused_by_name(where: str) -> None:
    with pytest.raises(InvalidSpec, match="not compiled yet") as refusal:
        compiled({"name": "later", **REFUSED[where]})
    assert f"later {where}" in str(refusal.value)


def test_a_fixed_decay_of_several_steps_a_token_acts_once() -> None:
    steps = {"rate": "token", "micro_steps": 2}
    conforms({"name": "later", "bias": "l2", "retention": {"decay": 0.9}, "optimizer": steps})


# -- momentum by channel ---------------------------------------------------------------------


@pytest.mark.parametrize("per", ["key", "value"])
@pytest.mark.parametrize("bias", ["dot", "l2", {"expr": "log(cosh(e))"}])
def test_momentum_by_channel_goes_token_by_token(per: str, bias: Any) -> None:
    spec = {
        "mnemic": 1, "name": "trails", "bias": bias, "retention": {"decay": "token"},
        "optimizer": {"rate": "token", "momentum": {"from": "input", "per": per},
                      "method": "momentum"},
    }  # fmt: skip
    conforms(spec)
    case = compiled(spec)
    assert case.forms == ("recurrent",)
    assert "momentum differs by channel" in case.rule.structure.reason


def test_momentum_by_channel_of_layers_is_refused() -> None:
    momentum = {"method": "momentum", "rate": "token", "momentum": {"from": "input", "per": "key"}}
    with pytest.raises(InvalidSpec, match="momentum by channel on a memory of several layers"):
        compiled({"mnemic": 1, "name": "trails", "bias": "l2", "memory": "mlp",
                  "optimizer": momentum})  # fmt: skip
