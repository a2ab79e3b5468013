"""Norms, and what divides by them."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import EVERYWHERE, PAIRS, Operation, Sample, Tile
from mnemic.codegen.ops.pulled import whole


def norm(at: At) -> None:
    """Differentiate n = ‖x‖: dx = d x / n, 0 at zero, where n is 1."""
    (x,) = at.arguments
    at.give_map(x, "d*x/n", d=at.d, x=x, n=at.out)


def distance(at: At) -> None:
    """Differentiate n = ‖y − v‖: dy = d (y − v) / n = −dv, 0 at an exact hit, where n is 1."""
    y, v = at.arguments
    at.give_map(y, "d*(y - v)/n", d=at.d, y=y, v=v, n=at.out)
    at.give_map(v, "d*(v - y)/n", d=at.d, y=y, v=v, n=at.out)


def squared_norm(at: At) -> None:
    """Differentiate κ = ‖x‖²: dx = 2 d x."""
    (x,) = at.arguments
    at.give_map(x, "2*d*x", d=at.d, x=x)


def layer_norm(at: At) -> None:
    """Differentiate a layer norm of z: dz = J(z) d, by ``layer_norm_vjp``."""
    (z,) = at.arguments
    at.give_call(z, "layer_norm_vjp", at.d, z)


def layer_norm_vjp(at: At) -> None:
    """Differentiate J(z) g, J symmetric, of a layer norm: dg = J(z) d, dz = ∂(dᵀ J g)/∂z."""
    grad, z = at.arguments
    at.give_call(grad, "layer_norm_vjp", at.d, z)
    at.give_call(z, "layer_norm_bend", at.d, grad, z)


# fmt: off
OPERATIONS = (
    Operation(
        "norm", "tv -> t", adjoint=norm, tile=Tile(),
        lane="tl.where(tl.abs({0}) > tiles.TINY, tl.abs({0}), 1.0)",
    ),
    Operation(
        "distance", "tv, tv -> t", token="v, v -> ", adjoint=distance, tile=Tile(),
        lane="tl.where(tl.abs({0} - {1}) > tiles.TINY, tl.abs({0} - {1}), 1.0)",
    ),
    Operation(
        "squared_norm", "tk -> t", token="k -> ", by_token=True, adjoint=squared_norm,
        tile=Tile(), lane="tl.maximum({0} * {0}, tiles.TINY)",
    ),
    Operation("squares", "*k -> *", adjoint=whole, sample=Sample("tk -> t")),
    Operation("key_size", "~tk -> t", tile=Tile(frozenset({PAIRS}), extras=("width:k",))),
    Operation(
        "layer_norm", "*v -> *v", mixes="v", by_token=True, adjoint=layer_norm,
        tile=Tile(EVERYWHERE, extras=("width:v",)), sample=Sample("tv -> tv"),
    ),
    Operation(
        "layer_norm_vjp", "*v, *v -> *v", mixes="v", adjoint=layer_norm_vjp,
        tile=Tile(EVERYWHERE, extras=("width:v",)), sample=Sample("tv, tv -> tv"),
    ),
    Operation(
        "layer_norm_bend", "*v, *v, *v -> *v", mixes="v",
        tile=Tile(EVERYWHERE, extras=("width:v",)), sample=Sample("tv, tv, tv -> tv"),
    ),
)
# fmt: on
