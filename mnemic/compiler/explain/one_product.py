"""A step as papers print it: W_t = W_{t-1} (αI − η k kᵀ) + η v kᵀ, one product and one write."""

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain.dialect import Dialect
from mnemic.compiler.explain.memory_equations import linked
from mnemic.compiler.explain.notation import (
    acted,
    feature,
    per,
    role_features,
    role_key,
    value,
)
from mnemic.compiler.rule import Linear, Rule
from mnemic.compiler.symbolic import simplified


def one_product(rule: Rule, d: Dialect) -> str | None:
    """Write W_t as W_{t−1} times one matrix plus a write; None where a step is no such product.

    It is one where one matrix without a link takes one plain step a token whose error is affine
    in the prediction, e = s ŷ + c with s and c/v free of ŷ and v: then the step takes
    η s W p rᵀ off and writes −η c sᵀ, with the keys p, r and s that predict, erase and write.
    """
    if not _is_plain(rule):
        return None
    taken = simplified(rule.gain * rule.rate * rule.error.slope)
    given = simplified(-rule.gain * rule.rate * rule.error.offset / sym.v)
    if given.has(sym.v) or {per(rule, taken), per(rule, given)} != {"head"}:
        return None
    predict = feature(rule, d, role_key(rule, d, "predict", "t"))
    erase, write = (role_features(rule, d, role, "t") for role in ("erase", "write"))
    before, after = d.of("W", "t-1"), d.of("W", "t")
    away = f"{d.minus} {d.factor(taken)}{predict} {erase}"
    if rule.seen == rule.decay:
        kept = f"{acted(rule, d, rule.decay, rule.row_decay, before)} {d.wrapped(f'I {away}')}"
    elif per(rule, rule.decay) == "key":
        kept = f"{before} {d.wrapped(d.call('Diag', d.expr(rule.decay)) + f' {away}')}"
    else:
        kept = f"{before} {d.wrapped(f'{d.factor(rule.decay)}I {away}')}"
    added = f"{d.factor(given)}{value(rule, d, 't')} {write}"
    return f"{after} = {kept} + {added}"


def _is_plain(rule: Rule) -> bool:
    """Return whether one step a token that is affine in the memory, and nothing else, moves it."""
    spec = rule.problem.spec
    one = spec.optimizer.micro_steps == 1 and spec.optimizer.inner_steps == 1
    plain = not linked(rule) and rule.retained.mode not in ("prox", "multiplicative")
    return (
        isinstance(rule, Linear)
        and one
        and plain
        and rule.kernels is None
        and rule.momentum is None
        and rule.applied.kind == "identity"
        and rule.window == 1
        and rule.anchor == 1
        and rule.row_decay == 1
        and not rule.diagonal
        and not rule.network.normed
        and rule.error.affine
        and not rule.error.constant
        and rule.seen in (1, rule.decay)
        and per(rule, rule.decay) in ("head", "key")
    )
