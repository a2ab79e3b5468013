"""The derived decay, gain and link against a numerical minimiser of the retention as written."""

import torch
from torch import Tensor

from mnemic.compiler import symbols as sym
from mnemic.compiler.oracle.evaluate import evaluate
from mnemic.compiler.oracle.minimise import AXES, domain_of, stretch
from mnemic.compiler.oracle.reference_links import apply_link, multiply
from mnemic.compiler.oracle.stated_retention import diverge, dual_of, retain
from mnemic.compiler.oracle.statement import function_text, penalty_rate
from mnemic.compiler.oracle.verify_error import coefficients, difference, symbolic
from mnemic.compiler.rule import Rule
from mnemic.dsl.retention import Ball, Simplex

SHAPE = (3, 3, 4)
"""Three matrices: a small, a middling and a large step."""


def retention(rule: Rule) -> float:
    """Compare W after one step from a feasible W', as derived and as minimised."""
    spec, names = rule.problem.spec, coefficients(rule)
    values, retained = symbolic(names), rule.retained
    rng = torch.Generator().manual_seed(3)
    sizes = torch.tensor([0.1, 0.7, 2.0], dtype=torch.float64)[:, None, None]
    pull = torch.randn(SHAPE, generator=rng, dtype=torch.float64) * sizes
    previous = _feasible(rule, names, rng)
    decay, gain = evaluate(retained.decay, values), evaluate(retained.gain, values)
    factor = evaluate(retained.factor, values)
    if spec.retention.local.divergence is not None:
        stated = diverge(spec, pull, previous, names)
    else:
        dual = _dual(rule, previous, names, rng)
        stated = retain(spec, dual + pull, penalty_rate(spec, names), names)
    if retained.mode == "multiplicative":
        return difference(multiply(retained, decay * previous, gain * pull, values), stated)
    if spec.retention.local.divergence is not None:
        dual = evaluate(retained.mirror, {**values, sym.w: previous})
    found = apply_link(retained.link, factor * (decay * dual + gain * pull), values)
    return difference(found, stated)


def _dual(rule: Rule, previous: Tensor, names: dict[str, Tensor], rng: torch.Generator) -> Tensor:
    """Return ∇R(W'); in the leader's view, where any sum of steps will do, a random one."""
    entry = rule.problem.spec.retention
    if entry.view == "ftrl" or entry.global_.norm is not None:
        return torch.randn(SHAPE, generator=rng, dtype=torch.float64)
    return dual_of(rule.problem.spec, previous, names)


def _feasible(rule: Rule, names: dict[str, Tensor], rng: torch.Generator) -> Tensor:
    """Draw a memory inside the generator's domain and the constraint."""
    entry = rule.problem.spec.retention
    noise = 0.7 * torch.randn(SHAPE, generator=rng, dtype=torch.float64)
    match entry.constraint:
        case Simplex(over=over):
            positive = 0.2 + torch.sigmoid(noise)
            return names["scale"] * positive / positive.sum(AXES[over], keepdim=True)
        case Ball():
            size = torch.linalg.vector_norm(noise, dim=(-2, -1), keepdim=True)
            inner: Tensor = noise * 0.8 * names["radius"] / size
            return inner
    if entry.local.generator is None:
        return torch.exp(noise)
    generator = function_text(entry.local.generator, "w", names)
    penalty = function_text(entry.global_.text, "w", names)
    return stretch(domain_of(lambda w: generator(w) + penalty(w)))(noise)
