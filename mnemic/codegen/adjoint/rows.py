"""Rules of the functions of rows: predictions, norms, sums."""

from collections.abc import Callable

from mnemic.codegen.adjoint.at import At
from mnemic.codegen.guards import TINY


def nothing(at: At) -> None:
    """A constant."""
    del at


# -- vectors and matrices --------------------------------------------------------------------


def recall(at: At) -> None:
    """y = M x: dM = d xᵀ, dx = Mᵀ d."""
    memory, x = at.arguments
    at.give_call(memory, "outer", at.d, x)
    at.give_call(x, "pull", memory, at.d)


def pull(at: At) -> None:
    """y = Mᵀ x: dM = x dᵀ, dx = M d."""
    memory, x = at.arguments
    at.give_call(memory, "outer", x, at.d)
    at.give_call(x, "recall", memory, at.d)


def recall_rows(at: At) -> None:
    """Y = X Mᵀ: dM = dᵀ X, dX = d M."""
    memory, x = at.arguments
    at.give_product(memory, at.d, x, "l")
    at.give_product(x, at.d, memory)


def pull_rows(at: At) -> None:
    """Y = X M: dM = Xᵀ d, dX = d Mᵀ."""
    memory, x = at.arguments
    at.give_product(memory, x, at.d, "l")
    at.give_product(x, at.d, memory, "r")


def recall_row(at: At) -> None:
    """y_t = n·x_t: dn = Σ_t d_t x_t, dx_t = d_t n."""
    vector, x = at.arguments
    at.give_call(vector, "vector_matrix", at.d, x)
    at.give_call(x, "outer", at.d, vector)


def matrix_rows(at: At) -> None:
    """y = M x: dM = d xᵀ, dx = Mᵀ d."""
    matrix, x = at.arguments
    at.give_call(matrix, "outer", at.d, x)
    at.give_call(x, "vector_matrix", at.d, matrix)


def vector_matrix(at: At) -> None:
    """y = Mᵀ x: dM = x dᵀ, dx = M d."""
    x, matrix = at.arguments
    at.give_call(matrix, "outer", x, at.d)
    at.give_call(x, "matrix_rows", matrix, at.d)


def outer(at: At) -> None:
    """M = x yᵀ: dx = dM y, dy = dMᵀ x."""
    x, y = at.arguments
    at.give_call(x, "recall", at.d, y)
    at.give_call(y, "pull", at.d, x)


# -- sums ------------------------------------------------------------------------------------


def total(at: At) -> None:
    """Σ over the last axis."""
    (x,) = at.arguments
    at.give_call(x, "as_vector", at.d, x)


def total_rows(at: At) -> None:
    """Σ over rows."""
    (x,) = at.arguments
    at.give_call(x, "as_rows", at.d, x)


def weigh(at: At) -> None:
    """Σ_s weights_ts rate_s."""
    weights, *rate = at.arguments
    if rate:
        at.give_call(weights, "outer", at.d, rate[0])
        at.give_call(rate[0], "vector_matrix", at.d, weights)
    else:
        at.give_call(weights, "as_vector", at.d, weights)


def column(at: At) -> None:
    """A scalar a row beside vectors, which enters each of their channels."""
    (x,) = at.arguments
    at.give_call(x, "total", at.d)


def as_vector(at: At) -> None:
    """A scalar a row as a vector."""
    x, _ = at.arguments
    at.give_call(x, "total", at.d)


# -- norms -----------------------------------------------------------------------------------


def norm(at: At) -> None:
    """n = ‖x‖: dx = d x / n, 0 at zero, where n is 1."""
    (x,) = at.arguments
    at.give_map(x, "d*x/n", d=at.d, x=x, n=at.out)


def distance(at: At) -> None:
    """n = ‖y − v‖: dy = d (y − v) / n = −dv, 0 at an exact hit, where n is 1."""
    y, v = at.arguments
    at.give_map(y, "d*(y - v)/n", d=at.d, y=y, v=v, n=at.out)
    at.give_map(v, "d*(v - y)/n", d=at.d, y=y, v=v, n=at.out)


def squared_norm(at: At) -> None:
    """κ = ‖x‖²: dx = 2 d x."""
    (x,) = at.arguments
    at.give_map(x, "2*d*x", d=at.d, x=x)


def positive(at: At) -> None:
    """x, at least ``TINY``."""
    (x,) = at.arguments
    at.give_map(x, f"Piecewise((d, x >= {TINY}), (0, True))", d=at.d, x=x)


def log_of(at: At) -> None:
    """log x: dx = d / x."""
    (x,) = at.arguments
    at.give_map(x, f"Piecewise((d/x, x >= {TINY}), (0, True))", d=at.d, x=x)


def layer_norm(at: At) -> None:
    """dz by the function that is made for it."""
    (z,) = at.arguments
    at.give_call(z, "layer_norm_vjp", at.d, z)


def layer_norm_vjp(at: At) -> None:
    """J(z) g with J symmetric: dg = J(z) d, and dz = ∂(dᵀ J g)/∂z."""
    grad, z = at.arguments
    at.give_call(grad, "layer_norm_vjp", at.d, z)
    at.give_call(z, "layer_norm_bend", at.d, grad, z)


# -- the error signal ------------------------------------------------------------------------


RULES: dict[str, Callable[[At], None]] = {
    "recall": recall,
    "pull": pull,
    "recall_rows": recall_rows,
    "pull_rows": pull_rows,
    "recall_row": recall_row,
    "matrix_rows": matrix_rows,
    "vector_matrix": vector_matrix,
    "outer": outer,
    "total": total,
    "total_rows": total_rows,
    "weigh": weigh,
    "column": column,
    "as_vector": as_vector,
    "norm": norm,
    "distance": distance,
    "squared_norm": squared_norm,
    "positive": positive,
    "log_of": log_of,
    "layer_norm": layer_norm,
    "layer_norm_vjp": layer_norm_vjp,
}
