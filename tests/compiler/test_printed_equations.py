"""The equations that the papers print, against the rules that are derived.

A printed equation whose verdict is ``agrees`` takes the derived rule's state after five random
tokens to its state after the sixth; one whose verdict is ``differs`` does not.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.published import inputs, step
from mnemic.compiler.rule import Rule
from mnemic.dsl import catalogue
from mnemic.dsl.load import load

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
    whole = rule.moments is not None or rule.fit is not None
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
    rule = derive_spec(load(name))
    printed = rule.problem.spec.published[index]
    vectors, arguments = drawn(rule)

    def after(tokens: int) -> tuple[Tensor, dict[str, Tensor]]:
        given = {n: x[:, :tokens] for n, x in {**vectors, **arguments}.items()}
        q, k, v = given.pop("q"), given.pop("k"), given.pop("v")
        y, state = interpret(rule, q, k, v, given)
        return y[0, -1, 0], state

    read = environment(rule, vectors, arguments, after(TOKENS - 1)[1])
    y, state = after(TOKENS)
    phi = features(rule, vectors["k"][0, -1, ..., 0, :])
    read["phi"] = phi
    if "k_i" in read:
        read["phi_i"] = [features(rule, k) for k in read["k_i"]]
    missing = {n for n in inputs(printed.rule) if read.get(n) is None} - {"I"}
    if missing:
        pytest.skip(f"the equation reads {sorted(missing)}, which the state does not hold")
    assigned = step(printed.rule, read)
    if "y" in assigned:  # the rule is printed as what it reads
        found, expected = assigned["y"][:, 0], y
    elif "W" in state:
        found = assigned["W"]
        expected = state["W"][0, 0]
    else:  # the memory is known by what it reads
        found, expected = (assigned["W"] @ read["q"])[:, 0], y
    same = found.shape == expected.shape and bool((found - expected).abs().max() < 1e-9)
    assert same == (printed.verdict == "agrees"), (found, expected)


def features(rule: Rule, k: Tensor) -> Tensor:
    """φ(k) as a column, by the reference definitions."""
    from mnemic.compiler.oracle.reference_features import feature_map

    row = k.reshape(-1, k.shape[-1])[-1]
    position = torch.tensor(TOKENS - 1, dtype=torch.float64)
    return feature_map(rule.problem, row, position)[:, None]
