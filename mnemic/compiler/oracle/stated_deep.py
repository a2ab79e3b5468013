"""The problem of a memory with layers as written, token by token by automatic differentiation.

It reads the spec, not the derived rule: M is a function of torch, G_t is autograd's gradient of
the window's loss at W_ref with respect to every matrix, O is Newton–Schulz as Muon has it. All of
it is differentiable from outside wherever the retention is not minimised numerically.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mnemic.compiler.oracle.stated_methods import METHODS
from mnemic.compiler.oracle.stated_network import (
    evaluate,
    intervals,
    orthogonalised,
    renormalised,
    seeing,
)
from mnemic.compiler.oracle.stated_retention import decays_only, dual_of, plain, retain
from mnemic.compiler.oracle.stated_steps import Names, Pair, window_weights
from mnemic.compiler.oracle.stated_tokens import Token
from mnemic.compiler.oracle.statement import loss, tensor
from mnemic.dsl.spec import Spec


@dataclass(frozen=True)
class Part:
    """One matrix: W and its dual A (which decays while W is held), S (or the steps accumulated
    since O was last applied), W at the last chunk end, W at the document's start, and the averages
    of an optimizer that acts entry by entry."""

    name: str
    every: int
    matrix: Tensor
    dual: Tensor
    step: Tensor
    anchor: Tensor
    first: Tensor
    averages: Mapping[str, Tensor]


Parts = dict[str, Part]

SPOKEN = ("gd", "momentum", "muon", *METHODS)
"""Methods whose steps are taken here."""


def differentiable(spec: Spec) -> bool:
    """Return whether gradients pass through the retention: through a minimiser they do not."""
    return plain(spec) or spec.retention.link is not None


def unspoken(spec: Spec) -> str | None:
    """Name the first part of a spec with layers that this oracle does not cover, or None."""
    optimizer, retention = spec.optimizer, spec.retention
    several = optimizer.micro_steps * optimizer.inner_steps > 1
    held = max(intervals(spec).values()) > 1
    told = {
        f"the method '{optimizer.method}'": optimizer.method not in SPOKEN,
        "an f-divergence": retention.local.divergence is not None,
        "several steps a token of a memory that is held": several and held,
        "several steps a token of a memory with norms": several and retention.normalize != "none",
        "erase and write keys apart": spec.keys.erase != spec.keys.write,
        "a normalised rate of a memory with layers": optimizer.rate.normalized,
        "a diagonal memory behind O, norms or an interval": type(spec.memory).word() == "diagonal",
        "norms beside a link": retention.normalize != "none" and not plain(spec),
        "momentum on the write of a memory that is held": held
        and getattr(optimizer.momentum, "on", "gradient") == "write",
    }
    return next((what for what, holds in told.items() if holds), None)


def lane(
    spec: Spec, sequence: list[list[Token]], duals: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the outputs [T, d_v] of one head of one sequence, and the last state by name.

    ``duals`` A_0 by the matrix's name. States: ``W1`` (its own dual, where the retention is plain)
    and its dual ``A1``, which decays while W is held, ``S1``, ``held1`` the memory that is read,
    ``anchor1``, ``norms1``, and so on; W, A, … where there is one matrix alone.
    """
    parts = _start(spec, duals, sequence[0][0].names)
    past: tuple[Pair, ...] = ()
    rows = []
    for t, micro in enumerate(sequence):
        before = parts
        for token in micro:
            past = (*past, token.pair)[-_width(spec) :]
            for inner in range(spec.optimizer.inner_steps):
                decays = token is micro[0] and inner == 0
                parts = _step(spec, parts, past, token, t, decays=decays)
        parts = {name: _closed(spec, part, t, micro[-1].names) for name, part in parts.items()}
        rows.append(evaluate(spec, _read(spec, before, parts), micro[0].query))
    return torch.stack(rows), _named(spec, parts, sequence[0][0].names)


def _width(spec: Spec) -> int:
    assert isinstance(spec.window, int)
    return spec.window


def _start(spec: Spec, duals: Mapping[str, Tensor], names: Names) -> Parts:
    """Return W_0 = link(A_0) without the global term's part, which comes with the first step."""
    found: Parts = {}
    for name, every in intervals(spec).items():
        dual = duals[name]
        matrix = _linked(spec, name, dual, tensor(0), names)
        zero = torch.zeros_like(dual)
        part = Part(name, every, matrix, dual, zero, matrix, matrix, {})
        bound = spec.retention.constraint.word() != "none"  # else ∇R(W_0) is A_0
        found[name] = _remirrored(spec, part, names) if bound else part
    return found


def _linked(spec: Spec, name: str, dual: Tensor, rate: Tensor, names: Names) -> Tensor:
    """Compute W of the dual; each matrix may have a scale of its own."""
    if plain(spec):
        return dual
    own = names.get("scale" + name.removeprefix("W"))
    here = {**names, "scale": own} if own is not None else names
    return retain(spec, dual, rate, here)


# -- one step --------------------------------------------------------------------------------


def _step(
    spec: Spec, parts: Parts, past: tuple[Pair, ...], token: Token, t: int, *, decays: bool
) -> Parts:
    """Take one step of the optimizer: return every matrix with its new S, A and W."""
    names, one = token.names, tensor(1)
    decay = names.get("alpha", one) * names.get("beta", one) if decays else one
    seen = {name: _reference(spec, part, decay, names) for name, part in parts.items()}
    whole, write = gradients(spec, seen, past, names)
    return {
        name: _moved(spec, part, whole[name], write[name], decay, names, t)
        for name, part in parts.items()
    }


def _reference(spec: Spec, part: Part, decay: Tensor, names: Names) -> Tensor:
    """Return W_ref; a memory held between updates is read as it is, even if decay comes first."""
    if spec.optimizer.anchor.chunk > 1:
        return part.anchor
    if spec.retention.order == "after" or part.every > 1:
        return part.matrix
    if plain(spec):
        return decay * part.matrix
    return _linked(spec, part.name, decay * part.dual, tensor(0), names)


def gradients(
    spec: Spec, seen: Mapping[str, Tensor], past: tuple[Pair, ...], names: Names
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return ∇_W Σ γ_i ℓ(M(W, φ(k_i)), v_i) for every matrix, and the part of it at ŷ = 0."""
    grown = {n: w if w.requires_grad else w.detach().requires_grad_() for n, w in seen.items()}
    at = {n: w.clone() for n, w in grown.items()}  # one matrix may have come from another
    whole = {n: torch.zeros_like(w).detach() for n, w in at.items()}
    write = dict(whole)
    wanted = getattr(spec.optimizer.momentum, "on", "gradient") == "write"
    for pair, gamma in zip(past, window_weights(spec, past, names), strict=True):
        shifts = _shifts(spec, at, pair)
        y = evaluate(spec, at, pair.predict, shifts)
        value = gamma * loss(spec, y, pair.value, names)
        whole = _added(whole, _written(_pulled(value, {**at, **shifts}), at, shifts, pair))
        if wanted:
            origin = torch.zeros_like(y).requires_grad_()
            at_zero = loss(spec, origin, pair.value, names)
            (error,) = torch.autograd.grad(at_zero, origin, create_graph=True)
            write = _added(write, _pulled((gamma * error * y).sum(), at))
    if not differentiable(spec):
        whole, write = ({n: g.detach() for n, g in x.items()} for x in (whole, write))
    return whole, write


def _pulled(value: Tensor, at: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Differentiate ``value`` by every matrix."""
    found = torch.autograd.grad(
        value, list(at.values()), create_graph=True, allow_unused=True, materialize_grads=True
    )
    return dict(zip(at, found, strict=True))


def _shifts(spec: Spec, at: Mapping[str, Tensor], pair: Pair) -> dict[str, Tensor]:
    """Return zeros to add to the products with φ, so that their gradients are the rows δ.

    They are needed only where δ is not written with the key that predicts: behind a kernel, or
    with separate keys.
    """
    if pair.plain:
        return {}
    return {n: torch.zeros_like(at[n][:, 0]).detach().requires_grad_() for n in seeing(spec)}


def _written(
    found: dict[str, Tensor], at: Mapping[str, Tensor], shifts: Mapping[str, Tensor], pair: Pair
) -> dict[str, Tensor]:
    """Replace the gradients of matrices that see φ by δ times the write key, or kernel's column."""
    return {n: torch.outer(found[n], pair.write) if n in shifts else found[n] for n in at}


def _added(one: dict[str, Tensor], other: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x + other[name] for name, x in one.items()}


def _moved(
    spec: Spec, part: Part, whole: Tensor, write: Tensor, decay: Tensor, names: Names, t: int
) -> Part:  # fmt: skip
    """Move one matrix by a step; one that is held only gathers until its interval ends."""
    if spec.optimizer.method in METHODS:
        return _entry_by_entry(spec, part, whole, decay, names)
    outside = spec.optimizer.method == "muon" and spec.optimizer.rate_at == "outside"
    rate, one = names["eta"], tensor(1)
    inner, outer = (one, rate) if outside else (rate, one)
    momentum = spec.optimizer.momentum
    gathered = part.step
    if momentum is None:
        step = gathered = -inner * whole + (part.step if part.every > 1 else 0)
    elif momentum.on == "write":
        gathered = names["theta"] * part.step - inner * write
        step = gathered - inner * (whole - write)
    else:
        step = gathered = names["theta"] * part.step - inner * whole
    if (t + 1) % part.every:
        new = _linked_anew(spec, replace(part, step=gathered), decay * part.dual, names)
        return replace(new, matrix=part.matrix)
    if spec.optimizer.method == "muon":
        step = orthogonalised(step, spec.optimizer.ns_steps)
    if momentum is None:
        gathered = torch.zeros_like(gathered)
    new = _linked_anew(spec, replace(part, step=gathered), decay * part.dual + outer * step, names)
    return _settled(spec, new, names) if spec.optimizer.anchor.chunk == 1 else new


def _entry_by_entry(
    spec: Spec, part: Part, gradient: Tensor, decay: Tensor, names: Names
) -> Part:  # fmt: skip
    """Take the paper's step, entry by entry, on one matrix."""
    take = METHODS[spec.optimizer.method]
    step, kept = take(gradient, dict(part.averages), names, spec.optimizer)
    dual = decay * part.dual - names["eta"] * step
    new = _linked_anew(spec, replace(part, averages=kept), dual, names)
    return _settled(spec, new, names) if spec.optimizer.anchor.chunk == 1 else new


def _linked_anew(spec: Spec, part: Part, dual: Tensor, names: Names) -> Part:
    """Return the part with W computed from a new dual.

    A retention that is a plain decay acts on the dual too.
    """
    rate = names["eta"]
    new = replace(part, dual=dual, matrix=_linked(spec, part.name, dual, rate, names))
    return _remirrored(spec, new, names) if decays_only(spec, names) else new


def _settled(spec: Spec, part: Part, names: Names) -> Part:
    """Apply what acts on W itself: norms, and ∇R(W) for A in the learning-retaining view."""
    held = spec.features.finite or part.name not in seeing(spec)  # kept keys have no entries
    if spec.retention.normalize != "none" and held:
        matrix = renormalised(spec, part.matrix, part.first)
        return replace(part, matrix=matrix, dual=matrix)
    return _remirrored(spec, part, names)


def _remirrored(spec: Spec, part: Part, names: Names) -> Part:
    leader = spec.retention.view == "ftrl" or spec.retention.global_.norm is not None
    if plain(spec) or leader or spec.retention.link is not None:
        return part
    return replace(part, dual=dual_of(spec, part.matrix, names))


def _closed(spec: Spec, part: Part, t: int, names: Names) -> Part:
    """Close a chunk: apply norms and retention to W if it was updated, then set the anchor."""
    chunk = spec.optimizer.anchor.chunk
    if chunk == 1 or (t + 1) % chunk:
        return part
    part = part if (t + 1) % part.every else _settled(spec, part, names)
    return replace(part, anchor=part.matrix)


# -- what is read and kept -------------------------------------------------------------------


def _read(spec: Spec, before: Parts, after: Parts) -> dict[str, Tensor]:
    match spec.readout.memory:
        case "before":
            return {name: part.matrix for name, part in before.items()}
        case "anchor":
            return {name: part.anchor for name, part in before.items()}
    return {name: part.matrix for name, part in after.items()}


def _named(spec: Spec, parts: Parts, names: Names) -> dict[str, Tensor]:
    """Name every part of the state; W is A where ∇R(W) = W and the retention is a decay at most."""
    retaining = spec.retention.view == "learning-retaining" and spec.retention.link is None
    quadratic = retaining and spec.retention.local.word() == "l2"
    same = plain(spec) or (quadratic and decays_only(spec, names))
    found: dict[str, Tensor] = {}
    for name, part in parts.items():
        tag = name.removeprefix("W")
        found[name] = part.dual if same else part.matrix
        found |= {
            f"A{tag}": part.dual,
            f"S{tag}": part.step,
            f"norms{tag}": _norms(spec, part.first),
        }
        found |= {f"held{tag}": part.matrix, f"anchor{tag}": part.anchor}
        kept = part.averages.items()
        found |= {n if n.endswith("_weight") else f"{n}{tag}": x for n, x in kept}
    return found


def _norms(spec: Spec, first: Tensor) -> Tensor:
    over = 0 if spec.retention.normalize == "columns" else 1
    if spec.retention.normalize == "layer-norm":
        first = first - first.mean(1, keepdim=True)
    found: Tensor = torch.linalg.vector_norm(first, dim=over)
    return found
