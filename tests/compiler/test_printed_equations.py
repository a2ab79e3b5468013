"""The equations that the papers print, against the rules that are derived.

A printed equation whose verdict is ``agrees`` takes the derived rule's state after five random
tokens to its state after the sixth; one whose verdict is ``differs`` does not.
"""

from typing import Any

import pytest
import torch
from packaged import rule_of
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.reference_links import apply_link
from mnemic.compiler.published import assignments, inputs, step
from mnemic.compiler.rule import KeyValuePairs, Layers, Moments, Rule
from mnemic.compiler.running import GRADIENT
from mnemic.dsl import catalogue
from mnemic.dsl.load import load
from mnemic.dsl.spec import Published

TOKENS, KEYS, VALUES = 6, 4, 4  # square, since some misprints stand on the other side
PRINTED = [
    pytest.param(name, index, id=f"{name}-{index}")
    for name in catalogue.names()
    for index, printed in enumerate(load(name).published)
    if printed.verdict in ("agrees", "differs")
]


def drawn(rule: Rule) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Random keys and values, and coefficients: natural by name, and as the operator takes them."""
    torch.manual_seed(1)
    spec, options = rule.problem.spec, {"dtype": torch.float64}
    steps = (spec.optimizer.micro_steps,) if spec.optimizer.micro_steps > 1 else ()
    width = VALUES if rule.diagonal else KEYS
    sizes = {"head": (), "key": (width,), "value": (VALUES,), "outer": (width,)}
    vectors = {"q": torch.randn(1, TOKENS, 1, width, **options)}
    vectors["k"] = torch.randn(1, TOKENS, *steps, 1, width, **options) / 2
    vectors["v"] = torch.randn(1, TOKENS, *steps, 1, VALUES, **options)
    for role in ("predict", "erase", "write", "carry"):
        if getattr(getattr(spec.keys, role), "own", False):
            vectors[role] = torch.randn(1, TOKENS, *steps, 1, width, **options) / 2
    arguments = {}
    for scalar in rule.scalars:
        if scalar.argument is None:
            continue
        micro = steps if scalar.name in ("eta", "delta") else ()
        shape = (1, TOKENS, *micro, 1, *sizes[scalar.per])
        if scalar.name == "gamma" and rule.gamma == "window" and rule.window > 1:
            shape = (1, TOKENS, 1, rule.window)
        value = 0.2 + 0.6 * torch.rand(shape, **options)
        arguments[scalar.argument] = value.log() if scalar.logarithmic else value
    return vectors, arguments


def environment(
    rule: Rule, vectors: dict[str, Tensor], arguments: dict[str, Tensor], state: dict[str, Tensor]
) -> dict[str, Any]:
    """What a printed equation of the last token reads."""
    last: dict[str, Any] = {name: x[0, -1, ..., 0, :] for name, x in vectors.items()}
    named: dict[str, Any] = {}
    for name, x in last.items():
        rows = x if x.ndim > 1 else x[None]
        named[name] = rows[-1][:, None]
        named |= {f"{name}_{i + 1}": row[:, None] for i, row in enumerate(rows)}
    for scalar in rule.scalars:
        if scalar.argument is None:
            named[scalar.name] = number(scalar.expr)
            continue
        value = arguments[scalar.argument][0, -1]
        value = value.exp() if scalar.logarithmic else value
        if value.shape[-1:] == (1,) and value.numel() == 1:
            named[scalar.name] = value.reshape(())
        elif scalar.name in ("eta", "delta"):
            named |= {f"{scalar.name}_{i + 1}": x.reshape(()) for i, x in enumerate(value)}
        else:
            named[scalar.name] = value.reshape(-1, 1)
    whole = isinstance(rule, Moments | KeyValuePairs)
    if rule.window > 1 or whole:
        past = TOKENS if rule.window == 1 else rule.window
        named["K"], named["V"] = (vectors[n][0, -past:, 0] for n in ("k", "v"))
        named["d_k"] = torch.tensor(float(vectors["k"].shape[-1]), dtype=torch.float64)
        named["k_i"] = [k[0][:, None] for k in vectors["k"][0, -past:]]
        named["v_i"] = [v[0][:, None] for v in vectors["v"][0, -past:]]
        named["H_i"] = householder(vectors, arguments, past)
        named["left_i"] = left(arguments, past)
        named["gamma_i"] = list(arguments["gamma"][0, -1, 0]) if "gamma" in arguments else None
    return {**named, **{name: state[name][0, 0] for name in ("W", "S", "A") if name in state}}


def householder(
    vectors: dict[str, Tensor], arguments: dict[str, Tensor], past: int
) -> list[Tensor] | None:
    """What carries each key to the last token: the product of I − η c cᵀ, the last on the left."""
    if "carry" not in vectors or "eta" not in arguments:
        return None
    eye = torch.eye(vectors["carry"].shape[-1], dtype=torch.float64)
    found = [eye]
    for t in range(TOKENS - 1, TOKENS - past, -1):
        c, eta = vectors["carry"][0, t, 0][:, None], arguments["eta"][0, t, 0]
        found.append(found[-1] @ (eye - eta * c @ c.T))
    return found[::-1]


def left(arguments: dict[str, Tensor], past: int) -> list[Tensor] | None:
    """What the decays after each pair leave of it."""
    if arguments.get("log_alpha") is None or arguments["log_alpha"].ndim > 3:
        return None
    decays = arguments["log_alpha"][0, TOKENS - past :, 0].exp()
    return [decays[i + 1 :].prod() for i in range(past)]


def number(expr: Any) -> Any:
    """A fixed coefficient: the first head's value, at the last token."""
    value = expr.subs({s: TOKENS - 1 if str(s) == "t" else 0 for s in expr.free_symbols})
    return torch.tensor(float(value), dtype=torch.float64) if value.is_finite else None


@pytest.mark.parametrize(("name", "index"), PRINTED)
def test_printed_equation_against_the_derived_rule(name: str, index: int) -> None:
    """``agrees`` agrees to 1e-9, ``differs`` does not."""
    rule = rule_of(name)
    printed = rule.problem.spec.published[index]
    if "grad" in inputs(printed.rule):
        assert_in_the_gradient(rule, printed)
        return
    vectors, arguments = drawn(rule)

    def after(tokens: int) -> tuple[Tensor, dict[str, Tensor]]:
        given = {n: x[:, :tokens] for n, x in {**vectors, **arguments}.items()}
        q, k, v = given.pop("q"), given.pop("k"), given.pop("v")
        y, state = interpret(rule, q, k, v, given)
        return y[0, -1, 0], state

    read = environment(rule, vectors, arguments, after(TOKENS - 1)[1])
    y, state = after(TOKENS)
    if rule.kernels is not None:
        read |= pairs(rule, vectors, state, printed.rule)
    else:
        read["phi"] = features(rule, vectors["k"][0, -1, ..., 0, :])
    if "k_i" in read and rule.kernels is None:
        read["phi_i"] = [features(rule, k) for k in read["k_i"]]
    missing = {n for n in inputs(printed.rule) if read.get(n) is None} - {"I"}
    if missing:
        pytest.skip(f"the equation reads {sorted(missing)}, which the state does not hold")
    assigned = step(printed.rule, read)
    if "y" in assigned:  # the rule is printed as what it reads
        found, expected = assigned["y"][:, 0], y
    elif "u" in assigned:  # the row that the last token adds
        found, expected = assigned["u"][:, 0], state["W"][0, 0, :, -1]
    elif "W" in state:
        found = assigned["W"]
        expected = state["W"][0, 0]
    else:  # the memory is known by what it reads
        found, expected = (assigned["W"] @ read["q"])[:, 0], y
    same = found.shape == expected.shape and bool((found - expected).abs().max() < 1e-9)
    assert same == (printed.verdict == "agrees"), (found, expected)


def pairs(
    rule: Rule, vectors: dict[str, Tensor], state: dict[str, Tensor], text: str
) -> dict[str, Any]:
    """Kept keys with their rows and values: up to the last token, which a row does not see."""
    if isinstance(rule, Layers):
        return {}
    count = TOKENS - ("u" in {name for name, _ in assignments(text)})
    return {
        "k_i": [k[:, None] for k in vectors["k"][0, :count, 0]],
        "v_i": [v[:, None] for v in vectors["v"][0, :count, 0]],
        "u_i": [u[:, None] for u in state["W"][0, 0].T[:count]],
    }


def assert_in_the_gradient(rule: Rule, printed: Published) -> None:
    """An equation in ``grad``, of one matrix of any memory, against the derived normal form."""
    rng = torch.Generator().manual_seed(2)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    given = {s.name: torch.rand((), generator=rng, dtype=torch.float64) for s in rule.scalars}
    given |= {s.name: number(s.expr) for s in rule.scalars if s.expr.is_number}
    named = {name.removesuffix("1"): x for name, x in given.items()}  # the first matrix's own
    values = {sym.coefficient(name): x for name, x in named.items()}
    values |= {sym.coefficient("gamma"): torch.ones((), dtype=torch.float64)}
    dual, momentum, grad = normal(VALUES, KEYS), normal(VALUES, KEYS), normal(VALUES, KEYS)
    read = {**named, "A": dual, "S": momentum, "grad": grad, "e": 10 * normal(VALUES, 1)}
    read["W"] = apply_link(rule.retained.link, dual, values)
    found = step(printed.rule, read)["W"]
    expected = normal_form(rule, dual, momentum, grad, values)
    same = bool((found - expected).abs().max() < 1e-9)
    assert same == (printed.verdict == "agrees"), (found, expected)


def normal_form(
    rule: Rule, dual: Tensor, momentum: Tensor, grad: Tensor, values: dict[Any, Tensor]
) -> Tensor:
    """W_t = link(decay A + gain O(S)), S = θ S − η G (or −η G); the rate outside O where told.

    Of an optimizer that acts entry by entry O is its step, and S its only average.
    """
    one = torch.ones((), dtype=torch.float64)
    rate = evaluate(rule.rate, values) + 0 * one
    inside, outside = (one, rate) if rule.applied.outside else (rate, one)
    taken = -inside * grad
    if rule.applied.elementwise:
        (average,) = rule.applied.averages
        known, decay = {GRADIENT: -grad}, evaluate(average.decay, values)
        after = decay * momentum + (1 - decay) * evaluate(average.entry, known)
        known |= {average.before: momentum, average.after: after}
        outside, taken = rate, evaluate(rule.applied.valued, {**values, **known})
    elif rule.momentum is not None:
        taken = evaluate(rule.momentum, values) * momentum + taken
    if rule.applied.kind == "newton-schulz":
        taken = step("S = ns(S)", {"S": taken})["S"]
    moved = evaluate(rule.decay, values) * dual + evaluate(rule.gain, values) * outside * taken
    return apply_link(rule.retained.link, moved, values)


def features(rule: Rule, k: Tensor) -> Tensor:
    """φ(k) as a column, by the reference definitions."""
    from mnemic.compiler.oracle.reference_features import feature_map

    row = k.reshape(-1, k.shape[-1])[-1]
    position = torch.tensor(TOKENS - 1, dtype=torch.float64)
    return feature_map(rule.problem, row, position)[:, None]
