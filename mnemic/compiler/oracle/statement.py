"""A spec's expressions evaluated from their text, in torch: no SymPy, no derivation.

``verify`` compares the derived rule with this reading of the spec.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache, reduce
from typing import Final

import torch
from torch import Tensor

from mnemic.dsl.coefficients import Coefficient
from mnemic.dsl.expressions import Expression, fold, parse
from mnemic.dsl.functions import CONSTANTS
from mnemic.dsl.spec import Spec

Names = Mapping[str, Tensor]


def tensor(value: float) -> Tensor:
    """Return a number in float64."""
    return torch.tensor(float(value), dtype=torch.float64)


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


FUNCTIONS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "neg": torch.neg,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "where": torch.where,
    "exp": torch.exp,
    "log": torch.log,
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "sign": torch.sign,
    "max": lambda *xs: reduce(torch.maximum, xs),
    "min": lambda *xs: reduce(torch.minimum, xs),
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "atan": torch.atan,
    "asinh": torch.asinh,
    "atanh": torch.atanh,
    "sigmoid": torch.sigmoid,
    "softplus": _softplus,
    "logsigmoid": lambda x: -_softplus(-x),
    "relu": torch.relu,
    "silu": lambda x: x * torch.sigmoid(x),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "erf": torch.erf,
    "heaviside": lambda x: (1 + torch.sign(x)) / 2,
    "round": lambda x: x + (torch.round(x) - x).detach(),
    "square": torch.square,
    "logit": torch.logit,
}


@cache
def _parsed(text: str, names: frozenset[str]) -> Expression:
    return parse(text, names)


def evaluate_text(text: str, names: Names) -> Tensor:
    """Return the expression as written, its symbols replaced by tensors that broadcast.

    >>> evaluate_text("e**2/2", {"e": tensor(3)})
    tensor(4.5000, dtype=torch.float64)
    """
    return fold(
        _parsed(text, frozenset(names)).tree,
        number=tensor,
        name=lambda word: names[word] if word in names else tensor(CONSTANTS[word]),
        apply=lambda function, arguments: FUNCTIONS[function](*arguments),
    )


def function_text(text: str, symbol: str, names: Names) -> Callable[[Tensor], Tensor]:
    """Return the expression as a function of one of its symbols."""
    return lambda x: evaluate_text(text, {**names, symbol: x})


def loss(spec: Spec, y: Tensor, v: Tensor, names: Names) -> Tensor:
    """Return ℓ(ŷ, v) as written, for ŷ and v of shape [..., d_v]: one number for each of [...].

    A coefficient is a number, one for each of [...], or a column [..., d_v, 1] of one a coordinate.
    """
    text, residual = spec.bias.text, y - v
    n = torch.linalg.vector_norm(residual, dim=-1, keepdim=True)
    place = {s: _beside(x, y) for s, x in names.items()}
    values = evaluate_text(text, {**place, "e": residual, "y": y, "v": v, "n": n})
    values = values + 0 * (n if is_radial(spec, names) else residual)
    return values.sum(-1)


def _beside(x: Tensor, y: Tensor) -> Tensor:
    """Shape a coefficient so that it meets the coordinates [..., d_v] of a prediction."""
    if x.ndim > y.ndim:
        return x[..., 0]
    return x[..., None] if x.ndim else x


def is_radial(spec: Spec, names: Names) -> bool:
    """Return whether ℓ is a function of ‖ŷ − v‖ alone."""
    used = _parsed(spec.bias.text, frozenset([*names, "e", "y", "v", "n"])).names
    return "n" in used and not used & {"e", "y", "v"}


def penalty_rate(spec: Spec, names: Names) -> Tensor:
    """Return what multiplies a global term beside a step: η, or the δ of an implicit step.

    One where that is infinite: the step is taken in the limit, the term is not.
    """
    rate = names.get(spec.rate_name, tensor(1))
    return torch.where(rate.isinf(), 1.0, rate)


def coefficient_names(spec: Spec, given: Names, point: Names) -> dict[str, Tensor]:
    """Return every coefficient at one place: arguments as given, the rest from what the spec says.

    ``given`` holds values by the coefficient's own name (not its logarithm); ``point`` h, H, t.
    """
    declared = spec.named_coefficients()
    found: dict[str, Tensor] = {}

    def value(name: str, coefficient: Coefficient) -> Tensor:
        if coefficient.value is not None:
            return tensor(coefficient.value)
        if coefficient.expr is None:
            return given[name] if name in given else given[f"{name}1"]  # one of each matrix
        wanted = parse(coefficient.expr, [*declared, *point]).names & set(declared)
        inner = {n: value(n, declared[n]) for n in wanted}
        return evaluate_text(coefficient.expr, {**point, **inner})

    for name, coefficient in declared.items():
        found[name] = value(name, coefficient)
    return {**given, **found}


def activation(coefficient: Coefficient, default: str) -> Callable[[Tensor], Tensor]:
    """Return the coefficient's activation: a function's name, or an expression in x."""
    text = coefficient.activation or default
    if text in FUNCTIONS:
        return FUNCTIONS[text]
    return lambda x: evaluate_text(text, {"x": x})
