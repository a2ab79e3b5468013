"""The recurrent form: the normal form of the rule, one token at a time."""

from dataclasses import dataclass
from typing import Any

import sympy as sp

from mnemic.codegen import kept as pairs
from mnemic.codegen.builder import WINDOW_WEIGHT, Builder
from mnemic.codegen.kept import Kept
from mnemic.codegen.links import decayed_in_the_dual, linked, mirrored, rooted
from mnemic.codegen.plan import Plan
from mnemic.codegen.readouts import headed, normalised, with_bonus
from mnemic.compiler import symbols as sym
from mnemic.compiler.kernelised import folded
from mnemic.compiler.kernels import Kernel
from mnemic.compiler.rule import Rule

MATRIX = ("v", "k")


@dataclass(frozen=True)
class States:
    """The carried states by role; the memory's is called A unless the link is the identity.

    Behind a kernel it is U, rows over ``kept`` keys, as momentum and anchor are.
    """

    memory: str
    momentum: str | None
    anchor: str | None
    kept: Kept | None = None


def declare_states(b: Builder) -> States:
    """Declare what is carried from token to token."""
    rule = b.rule
    kept = pairs.declare(b, momentum=rule.momentum is not None, anchor=_anchored(b))
    axes = MATRIX if kept is None else pairs.ROWS
    free = rule.retained.mode != "dual" and rule.anchor == 1
    plain = rule.retained.mode == "dual" and rule.retained.link.identity
    name = "W" if plain or free else "A"
    memory = b.plan.given(name if kept is None else "U", axes, state=True)
    momentum = b.plan.given("S", axes, state=True) if rule.momentum is not None else None
    anchor = b.plan.given("anchor", axes, state=True) if _anchored(b) else None
    return States(memory, momentum, anchor, kept)


def stabilise(b: Builder) -> None:
    """Shares of old and new under a running maximum m of the weights' logarithms."""
    if not b.stabilised:
        return
    log_decay = b.log_decay(b.rule.decay)
    assert log_decay is not None
    m = b.plan.given("m", (), state=True)
    old, new, top = (sp.Symbol(s, real=True) for s in ("old_", "new_", "top_"))
    kept = b.map("log_kept", old + new, {"old_": log_decay, "new_": m})
    log_eta = b.argument("eta")
    following = b.map("m_next", sp.Max(old, new), {"old_": kept, "new_": log_eta}, "readout")
    b.plan.following[m] = following
    b.shares = {
        "kept_share": b.map("kept", sp.exp(old - top), {"old_": kept, "top_": following}),
        "new_share": b.map("new", sp.exp(new - top), {"new_": log_eta, "top_": following}),
    }


def _anchored(b: Builder) -> bool:
    sees = b.rule.anchor > 1 and b.predicts
    return sees or b.rule.problem.spec.readout.memory == "anchor"


def build(rule: Rule) -> Plan:
    """The plan of one token."""
    rule = folded(rule)
    slot = ("r",) if rule.window > 1 else ()
    b = Builder(rule, (), slot=slot)
    b.declare_vectors()
    states = declare_states(b)
    stabilise(b)
    roles = b.roles()
    seen = _reference(b, states)
    written = _gradient(b, states, roles, seen)
    later = _later(b, states, roles["write"])
    dual = _update(b, states, written)
    memory = _memory(b, states, dual)
    b.plan.following[states.memory] = memory if _free(rule) else dual
    if states.anchor is not None:
        b.plan.close(rule.anchor, states.anchor, memory)
        b.plan.following.setdefault(states.anchor, states.anchor)
    if rule.retained.mode == "prox" and not _free(rule):  # also where nothing reads the anchor
        b.plan.close(rule.anchor, states.memory, mirrored(b, memory, "B"))
    _read(b, states, memory, roles, later)
    return b.plan


def _later(b: Builder, states: States, key: str) -> Kept | None:
    """Kept keys after the token."""
    return None if states.kept is None else pairs.grow(b, states.kept, key, states.anchor)


def _free(rule: Rule) -> bool:
    """Whether the state is W itself although the link is no identity."""
    return rule.retained.mode != "dual" and rule.anchor == 1


def _reference(b: Builder, states: States) -> str:
    """W_ref: the memory that the gradient sees."""
    rule = b.rule
    if states.anchor is not None and rule.anchor > 1:
        return states.anchor
    seen = states.memory
    decay = _decay_seen(rule)
    if decay != 1 and rule.retained.mode == "prox" and rule.retained.mirror != sym.w:
        return decayed_in_the_dual(b, states.memory, decay)
    if decay != 1:
        env: dict[str, Any] = {**_sided(b, decay), "memory": states.memory}
        seen = b.map("seen", decay * sp.Symbol("memory", real=True), env, "prediction")
    bound = decay != 1 and rule.retained.mode == "prox" and rule.retained.link.normaliser != "none"
    if _free(rule) and not bound:
        return seen
    return linked(b, seen, rule.retained.link, "W_seen")  # a decayed memory stays in its set


def _decay_seen(rule: Rule) -> Any:
    """The part of the decay that the gradient sees; a row over its sum takes what is its own."""
    if rule.problem.spec.retention.order != "before":
        return sp.Integer(1)
    if rule.kernels is not None and rule.kernels.predict.normalised:
        return rule.row_decay
    return rule.seen * rule.row_decay


def _sided(b: Builder, expr: Any) -> dict[str, str]:
    return b.coefficients(expr)


def _predicted(b: Builder, states: States, seen: str, key: str) -> str:
    """ŷ = W_ref φ(k), of every key of a window."""
    kept, kernels = states.kept, b.rule.kernels
    if kept is not None and kernels is not None:
        counts = kept.anchor if b.rule.anchor > 1 else kept.counts
        return pairs.recall(b, kernels.predict, kept.keys, seen, counts, key, "y_hat", "prediction")
    rows = b.plan.axes(key)[:-1]
    function = "recall" if rows == () else "recall_rows"
    return b.call("y_hat", (*rows, "v"), function, seen, key, equation="prediction")


def _gradient(
    b: Builder, states: States, roles: dict[str, str], seen: str
) -> tuple[tuple[str, str], ...]:
    """The steps −η G as matrices, each with the state that it goes through."""
    rule = b.rule
    prediction = _predicted(b, states, seen, roles["predict"]) if b.predicts else None
    through = "memory" if rule.momentum is None else "momentum"
    factor = -b.rate * _window_weight(rule)
    if rule.split:
        erased = b.error(rule.error.slope * sym.y, prediction, roles["value"], roles["predict"],
                         "erased", factor)  # fmt: skip
        written = b.error(rule.error.offset, None, roles["value"], roles["predict"], "written",
                          factor)  # fmt: skip
        direct = "memory" if rule.momentum_on == "write" else through
        return (
            (_outer(b, "erasure", erased, roles["erase"]), direct),
            (_outer(b, "writing", written, roles["write"]), through),
        )
    step = _signal(b, prediction, roles, factor)
    return ((_outer(b, "G", step, roles["write"]), through),)


def _signal(b: Builder, prediction: str | None, roles: dict[str, str], factor: Any) -> str:
    return headed(b, prediction, roles, factor, "u")


def _window_weight(rule: Rule) -> Any:
    return sp.Integer(1) if rule.window == 1 else WINDOW_WEIGHT


def _outer(b: Builder, name: str, rows: str, keys: str) -> str:
    if b.rule.kernels is not None:
        return rows
    if "r" in b.plan.axes(rows):
        return b.product(name, MATRIX, rows, keys, flip_left=True, equation="gradient")
    u, k = sp.Symbol("u", real=True), sp.Symbol("kay", real=True)
    return b.map(name, u * k, {"u": rows, "kay": keys}, "gradient")


def _update(b: Builder, states: States, written: tuple[tuple[str, str], ...]) -> str:
    """A_t = decay ∘ A_{t−1} + gain·S_t."""
    rule = b.rule
    if states.kept is not None:
        return _grow(b, states, written)
    direct = [name for name, through in written if through == "memory"]
    averaged = [name for name, through in written if through == "momentum"]
    terms: dict[str, str] = {f"term{i}": name for i, name in enumerate(direct)}
    if states.momentum is not None:
        env = {f"g{i}": name for i, name in enumerate(averaged)}
        total = sum((sp.Symbol(g, real=True) for g in env), sp.Integer(0))
        expr = rule.momentum * sp.Symbol("S_", real=True) + total
        env |= {"S_": states.momentum, **b.coefficients(rule.momentum)}
        terms["momentum"] = b.map("S_next", expr, env, "momentum")
        b.plan.following[states.momentum] = terms["momentum"]
    base = states.memory
    if rule.retained.mode == "prox" and rule.anchor == 1:
        base = mirrored(b, states.memory, "B")
    step = sum((sp.Symbol(t, real=True) for t in terms), sp.Integer(0))
    env = dict(terms)
    if rule.retained.mode == "multiplicative":
        scaled = b.decay * rule.row_decay * sp.Symbol("W_", real=True)
        kept = b.map("kept", scaled, {"W_": states.memory, **b.coefficients(scaled)}, "dual")
        dual = b.map("step", step, env)
        return _multiplied(b, kept, dual)
    expr = b.decay * rule.row_decay * sp.Symbol("A_", real=True) + rule.gain * step
    env |= {"A_": base, **b.coefficients(b.decay * rule.row_decay), **b.coefficients(rule.gain)}
    return b.map("A_next" if states.memory == "A" else "W_next", expr, env, "dual")


def _grow(b: Builder, states: States, written: tuple[tuple[str, str], ...]) -> str:
    """The same of rows: what is left of the kept ones, and a token's own."""
    rule = b.rule
    every = {f"term{i}": name for i, (name, _) in enumerate(written)}
    new = sp.Add(*(sp.Symbol(term, real=True) for term in every))
    old = b.decay * rule.row_decay * sp.Symbol("U_", real=True)
    env: dict[str, Any] = {"U_": states.memory, **b.coefficients(b.decay * rule.row_decay)}
    if states.momentum is not None:
        faded = rule.momentum * sp.Symbol("S_", real=True)
        own = {"S_": states.momentum, **b.coefficients(rule.momentum)}
        old, env = old + rule.gain * faded, {**env, **own, **b.coefficients(rule.gain)}
        slow = {f"term{i}": name for i, (name, through) in enumerate(written)
                if through == "momentum"}  # fmt: skip
        rows = b.map("S_new", sp.Add(*(sp.Symbol(term, real=True) for term in slow)), slow)
        b.plan.following[states.momentum] = pairs.append_rows(
            b, "S_next", b.map("S_left", faded, own, "momentum"), rows, "momentum"
        )
    left = b.map("U_left", old, env, "dual")
    fresh = b.map("U_new", rule.gain * new, {**every, **b.coefficients(rule.gain)}, "dual")
    return pairs.append_rows(b, "U_next", left, fresh, "dual")


def _multiplied(b: Builder, kept: str, step: str) -> str:
    link = b.rule.retained.link
    if link.normaliser == "root":
        return rooted(b, link, step, kept, "W_next")
    factor = linked(b, step, link, "g")
    one, two = sp.Symbol("kept_", real=True), sp.Symbol("g_", real=True)
    return b.map("W_next", one * two, {"kept_": kept, "g_": factor}, "link")


def _memory(b: Builder, states: States, dual: str) -> str:
    if b.rule.retained.mode == "multiplicative":
        return dual
    return linked(b, dual, b.rule.retained.link, "W_now")


def _read(
    b: Builder, states: States, memory: str, roles: dict[str, str], later: Kept | None
) -> None:
    readout = b.rule.problem.spec.readout
    if readout.memory == "anchor":
        assert states.anchor is not None
        memory = states.anchor
    elif readout.memory == "before":
        memory = (
            states.memory
            if _free(b.rule)
            else linked(b, states.memory, b.rule.retained.link, "W_before")
        )
    query = b.featured("q")
    if states.kept is not None and later is not None and b.rule.kernels is not None:
        read = _recalled(b, b.rule.kernels.read, states.kept, later, memory, query)
    else:
        read = b.call("y", ("v",), "recall", memory, query, equation="readout")
    read = with_bonus(b, read, query, roles)
    b.plan.output = normalised(b, read, query, roles)


def _recalled(
    b: Builder, kernel: Kernel, kept: Kept, later: Kept, rows: str, query: str
) -> str:  # fmt: skip
    """The read-out of rows over kept keys: those after the token, unless it reads the past."""
    where = b.rule.problem.spec.readout.memory
    keys, counts = (later.keys, later.counts) if where == "after" else (kept.keys, kept.counts)
    if where == "anchor":
        counts = kept.anchor
    return pairs.recall(b, kernel, keys, rows, counts, query, "y", "readout")
