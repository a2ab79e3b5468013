"""A layer's rule as a node of ONNX's ``LinearAttention``, while the layer is traced."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import sympy as sp
import torch
from torch import Tensor, nn

from mnemic.compiler import symbols as sym
from mnemic.compiler.problem import HEAD, HEADS
from mnemic.compiler.rule import Rule
from mnemic.export.standard_rules import Standard

OPSET: Final = 27
"""The first of ONNX's that has the operator."""

HOLDER: Final = "mnemic"
"""The domain that nodes of the operator have until the graph around them is of its opset."""

OPERATOR: Final = "LinearAttention"

DIGITS: Final = 17
"""Of numbers in an expression: as many as float64 has."""

_FUNCTIONS: Final = {"exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt}


class StandardOperator:
    """Stands for a rule's operator: called the same way, it adds a node to the graph.

    Args:
        operator: the compiled rule, whose state is W alone.
        rule: the derived rule.
        form: how the rule is one of the operator's.
    """

    def __init__(self, operator: Any, rule: Rule, form: Standard) -> None:
        self.operator, self.rule, self.form = operator, rule, form

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, *, initial_state: Mapping[str, Tensor],
        params: Any = None, form: str = "auto", output_final_state: bool = True,
        **coefficients: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:  # fmt: skip
        """Return o [B, T, H_q, d_v] and the state, of q [B, T, H_q, d_k], k and v [B, T, H, ·]."""
        query, value, decay, beta = self.inputs(q, k, v, coefficients)
        rows, tokens, heads, _ = k.shape
        state = initial_state["W"].mT
        decay = None if decay is None else decay.flatten(2)
        packed, kept = torch.onnx.ops.symbolic_multi_out(
            f"{HOLDER}::{OPERATOR}",
            (query.flatten(2), k.flatten(2), value.flatten(2), state, decay, beta),
            {"update_rule": self.form.update_rule, "q_num_heads": q.shape[2], "kv_num_heads": heads,
             "scale": 1.0},
            dtypes=(v.dtype, v.dtype),
            shapes=((rows, tokens, q.shape[2] * v.shape[3]), tuple(state.shape)),
            version=1,
        )  # fmt: skip
        return packed.reshape(*q.shape[:3], v.shape[3]), {"W": kept.mT}

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, coefficients: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return what the operator is given: q, v, g [B, T, H] or [B, T, H, d_k], β [B, T, H]."""
        x, told, shape = self._values(k, coefficients), self.form, k.shape[:3]
        query, value = (
            z if factor == 1 else z * self._of(factor, x)[..., None]
            for z, factor in ((q, told.query), (v, told.value))
        )
        decay = None if told.log_decay is None else self._of(told.log_decay, x, told.per_key)
        if decay is not None:
            decay = decay.expand_as(k) if told.per_key else decay.expand(shape)
        beta = None if told.beta is None else self._of(told.beta, x).expand(shape)
        return query, value, decay, beta

    def _values(self, k: Tensor, coefficients: Mapping[str, Tensor]) -> dict[Any, Tensor]:
        """Return the values of the rule's symbols, [B, T, H] or [B, T, H, d_k]; logarithms too."""
        heads = torch.arange(k.shape[2], dtype=k.dtype)
        found = {HEAD: heads, HEADS: torch.full_like(heads, k.shape[2]), sym.kappa: (k * k).sum(-1)}
        for scalar in self.rule.scalars:
            if scalar.argument is None:
                continue
            given = coefficients[scalar.argument]
            found[scalar.symbol] = given.exp() if scalar.logarithmic else given
            if scalar.logarithmic:
                found[sp.log(scalar.symbol)] = given
        return found

    def _of(self, expr: Any, x: Mapping[Any, Tensor], per_key: bool = False) -> Tensor:
        """Evaluate an expression; with ``per_key`` what is one a head gets an axis of channels."""
        logs = {e: sp.Symbol(f"log_{e.args[0]}") for e in x if isinstance(e, sp.log)}
        names = {logs.get(e, e): y for e, y in x.items()}
        expr = sp.N(sp.sympify(expr).subs(logs), DIGITS)
        used = sorted(expr.free_symbols, key=str)
        if not used:
            return x[sym.kappa].new_tensor(float(expr))
        wide = [names[s] for s in used]
        if per_key:
            wide = [y[..., None] if y.ndim < 4 else y for y in wide]
        found: Tensor = sp.lambdify(used, expr, modules=[_FUNCTIONS])(*wide)
        return found


@contextmanager
def standing_in(layers: Mapping[nn.Module, StandardOperator]) -> Iterator[None]:
    """Let layers call these in place of their rules, until the end of the block."""
    for layer, operator in layers.items():
        layer.__dict__["rule"] = operator
    try:
        yield
    finally:
        for layer in layers:
            del layer.__dict__["rule"]
