"""Memories of kept pairs: a weighted mean, a local linear fit, or a kernel interpolation a query.

Recurrent: the pairs are appended one by one and every query sees all of them. Chunk: the rows of a
chunk at once, through attention where the logit is an inner product, else block by block.
"""

from typing import Any

import sympy as sp

from mnemic.codegen.builder import BuilderOf
from mnemic.codegen.plan import Plan
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler import symbols as sym
from mnemic.compiler.rule import Fit, KeyValuePairs

PAIR = (sym.kq, sym.kk, sym.qq)

SIMILARITY = '''def similarity(kq, kk, qq{extra}):
    """{what}, of k·q, ‖k‖² and ‖q‖²."""
    return {body}
'''


def recurrent(rule: KeyValuePairs) -> Plan:
    """Return the plan of one token."""
    fit = rule.fit
    b = BuilderOf(rule, ())
    b.declare_vectors()
    if fit.kind == "interpolation":
        return _interpolated_token(b, fit)
    kept = _Kept(b)
    keys, values = kept.by_token()
    log_kept = kept.decayed_by_token()
    query = b.featured("q")
    logs = fit.similarity.logit is not None
    score = _score(b, fit, keys, query)
    y, x = sp.Symbol("y_", real=True), sp.Symbol("x_", real=True)
    if log_kept is not None:
        env: dict[str, Any] = {"x_": score, "y_": log_kept}
        score = b.map("log_weight" if logs else "weight", x + y if logs else x * sp.exp(y), env,
                      "weights")  # fmt: skip
    if fit.kind == "mean":
        weights = b.call("share", ("n",), "exp_shares" if logs else "shares", score)
        read = b.call("y", ("v",), "vector_matrix", weights, values, equation="readout")
    else:
        weights = b.call("relative", ("n",), "exp_relative" if logs else "relative", score)
        ridge = b.row_map("ridge_now", fit.ridge)
        read = b.call("y", ("v",), "local_linear", weights, keys, values, query, ridge,
                      equation="fit")  # fmt: skip
    b.plan.output = read
    return b.plan


def chunk(rule: KeyValuePairs) -> Plan:
    """Return the plan of one chunk."""
    fit = rule.fit
    b = BuilderOf(rule, ("t",))
    b.declare_vectors()
    if fit.kind == "interpolation":
        return _interpolated_chunk(b, fit)
    kept = _Kept(b)
    keys, values = kept.by_rows()
    left = kept.decayed_by_rows()
    query = b.featured("q")
    still = left is None and fit.carry is None
    if still and fit.kind == "mean" and fit.similarity.linear is not None:
        b.plan.output = _attention(b, fit, keys, values, query)
        return b.plan
    extras = _declare_similarity(b, fit, query)
    logs = fit.similarity.logit is not None
    rest = (*kept.steps, *(() if left is None else (left,)), *extras)
    options: dict[str, Any] = {
        "similarity": "similarity", "logs": logs, "decayed": left is not None, **kept.span,
    }  # fmt: skip
    if kept.steps:
        options |= {"moves": True, "sizes": bool(fit.similarity.score.has(sym.kk))}
    if fit.kind == "mean":
        b.plan.output = b.call("y", ("t", "v"), "local_means", query, keys, values, *rest,
                               equation="readout", **options)  # fmt: skip
        return b.plan
    ridge = b.row_map("ridge_now", fit.ridge)
    solver = rule.problem.spec.optimizer.solver
    b.plan.output = b.call(
        "y", ("t", "v"), "local_linears", query, keys, values, ridge, *rest, equation="fit",
        iterations=solver.most, tolerance=solver.tolerance, **options,
    )  # fmt: skip
    return b.plan


def span(rule: KeyValuePairs) -> dict[str, int]:
    """Return the window as an option of the support functions, where there is one."""
    return {"span": rule.window} if rule.window > 1 else {}


# -- kept pairs ------------------------------------------------------------------------------


class _Kept:
    """The kept keys and values, and what is left of their weights."""

    def __init__(self, b: BuilderOf[KeyValuePairs]) -> None:
        self.b = b
        self.span: dict[str, Any] = {**span(b.rule)}
        self.keys = b.plan.given("keys", ("n", "k"), state=True)
        self.values = b.plan.given("values", ("n", "v"), state=True)
        self.log_kept = None
        if b.rule.decay != 1:
            self.log_kept = b.plan.given("log_kept", ("n",), state=True)
        self.roles = b.roles()
        self.steps: tuple[str, ...] = ()
        """w and η of the step that moves the kept keys, where they move."""
        if b.rule.fit.carry is not None:
            self.steps = (self.roles["carry"], b.row_map("rate", b.rule.rate))

    def by_token(self) -> tuple[str, str]:
        """Plan the pairs that a token sees: the keys moved, its own behind them."""
        keys = self.keys
        if self.steps:
            b, (w, rate) = self.b, self.steps
            along = b.call("along", ("n",), "recall", keys, w, equation="keys")
            k, u, x, eta = (sp.Symbol(s, real=True) for s in ("k_", "u_", "w_", "eta_"))
            env: dict[str, Any] = {
                "k_": keys, "u_": along, "w_": (w, ("k",)), "eta_": (rate, ()),
            }  # fmt: skip
            keys = b.map("moved", k - eta * u * x, env, "keys")
        keys = self._grown("keys", keys, "append", "write", "k")
        values = self._grown("values", self.values, "append", "value", "v")
        self.b.plan.following |= {self.keys: keys, self.values: values}
        return keys, values

    def by_rows(self) -> tuple[str, str]:
        """Plan the pairs with a chunk's own behind them; keys that move stand as before it."""
        keys = after = self._grown("keys", self.keys, "append_rows", "write", "k")
        if self.steps:
            after = self.b.call("keys_end", ("n", "k"), "carried_keys", self.keys,
                                self.roles["write"], *self.steps, equation="keys",
                                **self.span)  # fmt: skip
        values = self._grown("values", self.values, "append_rows", "value", "v")
        self.b.plan.following |= {self.keys: after, self.values: values}
        return keys, values

    def _grown(self, name: str, kept: str, function: str, role: str, axis: str) -> str:
        return self.b.call(f"{name}_next", ("n", axis), function, kept, self.roles[role],
                           **self.span)  # fmt: skip

    def _log_decay(self) -> str:
        return self.b.needed_log_decay(self.b.rule.decay)

    def decayed_by_token(self) -> str | None:
        """Plan log Π α_j over i < j ≤ t for every kept pair i; ``None`` where nothing decays."""
        if self.log_kept is None:
            return None
        b = self.b
        old, new = sp.Symbol("old_", real=True), sp.Symbol("new_", real=True)
        env: dict[str, Any] = {"old_": self.log_kept, "new_": self._log_decay()}
        aged = b.map("aged", old + new, env, "weights")
        grown = b.call("log_kept_next", ("n",), "append", aged, b.zero(), **self.span)
        b.plan.following[self.log_kept] = grown
        return grown

    def decayed_by_rows(self) -> str | None:
        """Plan the logarithms of what decays leave of pairs, of which only differences count."""
        if self.log_kept is None:
            return None
        b, decay = self.b, self._log_decay()
        left = b.call("left", ("n",), "decays_left", self.log_kept, decay, equation="weights",
                      **self.span)  # fmt: skip
        b.plan.following[self.log_kept] = b.call("log_kept_next", ("n",), "decays_at_end", left,
                                                 decay)  # fmt: skip
        return left


# -- similarities ----------------------------------------------------------------------------


def _score(b: BuilderOf[KeyValuePairs], fit: Fit, keys: str, query: str) -> str:
    """Plan the logit (or the weight) of every kept pair at one query."""
    expr = fit.similarity.score
    env: dict[str, Any] = _row_values(b, expr, query)
    env["kq"] = b.call("kq", ("n",), "recall", keys, query)
    if expr.has(sym.kk):
        env["kk"] = b.call("kk", ("n",), "squares", keys)
    if expr.has(sym.qq):
        env["qq"] = b.call("qq", (), "squares", query)
    logs = fit.similarity.logit is not None
    return b.map("logit" if logs else "similar", expr, env, "weights")


def _row_values(b: BuilderOf[KeyValuePairs], expr: Any, query: str) -> dict[str, Any]:
    """Return the coefficients of an expression and d_k, a number a row each."""
    found: dict[str, Any] = dict(b.coefficients(expr))
    if expr.has(sym.d_k):
        rows = b.plan.axes(query)[:-1]
        found["d_k"] = b.call("d_k", rows, "key_size", query)
    return found


def _declare_similarity(b: BuilderOf[KeyValuePairs], fit: Fit, query: str) -> tuple[str, ...]:
    """Declare the similarity as a function; return what calls give it beside the three products."""
    expr = fit.similarity.score
    extra = _row_values(b, expr, query)
    logs = fit.similarity.logit is not None
    b.plan.functions["similarity"] = SIMILARITY.format(
        extra="".join(f", {name}" for name in extra),
        what="The logarithm of a pair's weight" if logs else "A pair's weight",
        body=print_torch(expr, {}),
    )
    return tuple(extra.values())


def _attention(b: BuilderOf[KeyValuePairs], fit: Fit, keys: str, values: str, query: str) -> str:
    """Plan y = softmax(Q Kᵀ) V of longer queries and keys."""
    found = fit.similarity.linear
    assert found is not None
    x, f = sp.Symbol("x_", real=True), sp.Symbol("f_", real=True)
    slope = _row(b, "slope", found.slope, query)
    asked = b.map("query", x * f, {"x_": query, "f_": slope}, "weights")
    for i, (outer, inner) in enumerate(found.terms):
        squares = b.call("kk", ("n",), "squares", keys)
        column = b.map(f"term{i}", inner, {"kk": squares}, "weights")
        keys = b.call("key", ("n", "k"), "beside", keys, column)
        factor = _row(b, f"factor{i}", outer, query)
        asked = b.call("query_extended", ("t", "k"), "beside", asked, factor)
    options: dict[str, Any] = {**span(b.rule)}
    return b.call("y", ("t", "v"), "attention", asked, keys, values, equation="readout", **options)


def _row(b: BuilderOf[KeyValuePairs], name: str, expr: Any, query: str) -> str:
    """Plan an expression of coefficients and d_k as one number a row."""
    env = _row_values(b, expr, query)
    if not env:
        env = {"zero": b.zero()}
        expr = expr + sp.Symbol("zero", real=True)
    return b.map(name, expr, env)


# -- interpolation ---------------------------------------------------------------------------


def _interpolation(b: BuilderOf[KeyValuePairs], fit: Fit) -> tuple[str, str, str, dict[str, str]]:
    """Declare the kernel as a function and the states; return the states and the roles."""
    keys = b.plan.given("keys", ("n", "k"), state=True)
    factor = b.plan.given("factor", ("n", "n"), state=True)
    solved = b.plan.given("solved", ("n", "v"), state=True)
    weight = fit.similarity.weight
    b.plan.functions["similarity"] = SIMILARITY.format(
        extra="", what="The kernel of two keys", body=print_torch(weight, {})
    )
    return keys, factor, solved, b.roles()


def _interpolated_token(b: BuilderOf[KeyValuePairs], fit: Fit) -> Plan:
    """Plan one token: the factor grows by a row; L⁻¹V by one as well."""
    keys, factor, solved, roles = _interpolation(b, fit)
    key, query = roles["write"], b.featured("q")
    cross = b.call("cross", ("n",), "kernel_row", key, keys, similarity="similarity",
                   equation="weights")  # fmt: skip
    own = b.call("own", (), "kernel_self", key, similarity="similarity", ridge=float(fit.ridge))
    border = b.call("border", ("n",), "half_solved", factor, cross)
    pivot = b.call("pivot", (), "pivot", own, border, equation="dual")
    grown = b.call("factor_next", ("n", "n"), "bordered", factor, border, pivot, equation="dual")
    entry = b.call("entry", ("v",), "next_solved", roles["value"], border, solved, pivot)
    b.plan.following[keys] = b.call("keys_next", ("n", "k"), "append", keys, key)
    b.plan.following[factor] = grown
    b.plan.following[solved] = b.call("solved_next", ("n", "v"), "append", solved, entry,
                                      equation="dual")  # fmt: skip
    asked = b.call("asked", ("n",), "kernel_row", query, b.plan.following[keys],
                   similarity="similarity", equation="weights")  # fmt: skip
    read = b.call("half", ("n",), "half_solved", grown, asked)
    b.plan.output = b.call("y", ("v",), "vector_matrix", read, b.plan.following[solved],
                           equation="readout")  # fmt: skip
    return b.plan


def _interpolated_chunk(b: BuilderOf[KeyValuePairs], fit: Fit) -> Plan:
    """Plan a chunk with one factor for all prefixes: its leading blocks factor theirs."""
    keys, factor, solved, roles = _interpolation(b, fit)
    key, query = roles["write"], b.featured("q")
    kernel: dict[str, Any] = {"similarity": "similarity"}
    cross = b.call("cross", ("t", "n"), "kernel_rows", key, keys, equation="weights", **kernel)
    own = b.call("own", ("t", "s"), "kernel_rows", key, key, **kernel)
    grown = b.call("factor_next", ("n", "n"), "grown_factor", factor, cross, own,
                   equation="dual", ridge=float(fit.ridge))  # fmt: skip
    entries = b.call("entries", ("t", "v"), "solved_behind", grown, solved, roles["value"])
    b.plan.following[keys] = b.call("keys_next", ("n", "k"), "append_rows", keys, key)
    b.plan.following[factor] = grown
    b.plan.following[solved] = b.call("solved_next", ("n", "v"), "append_rows", solved, entries,
                                      equation="dual")  # fmt: skip
    asked = b.call("asked", ("t", "n"), "kernel_rows", query, b.plan.following[keys],
                   equation="weights", **kernel)  # fmt: skip
    read = b.call("half", ("t", "n"), "half_solved_rows", grown, asked)
    b.plan.output = b.call("y", ("t", "v"), "prefix_reads", read, b.plan.following[solved],
                           equation="readout")  # fmt: skip
    return b.plan
