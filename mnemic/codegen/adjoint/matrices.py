"""Rules of what acts on whole memories: links, norms, O, and memories row by row."""

from collections.abc import Callable

from mnemic.codegen.adjoint.at import At, Axes, Env
from mnemic.codegen.guards import TINY


def _inner(at: At, name: str, text: str, axes: Axes, kept: Axes, **env: str) -> str:
    """Σ of an expression over the axes that are not kept."""
    return at.summed(name, at.map(f"{name}_parts", axes, text, **env), axes, kept)


# -- links -----------------------------------------------------------------------------------


def simplex(at: At) -> None:
    """w = c softmax(a): da = w (d − Σ d w / c), dc = Σ d w / c."""
    exponent, scale = at.arguments
    axes = at.quantity.axes
    over = {"all": axes[-2:], "rows": axes[-1:], "columns": axes[-2:-1]}[at.option("over")]
    kept = tuple(a for a in axes if a not in over)
    inner = _inner(at, f"{at.d}_inner", "d*w", axes, kept, d=at.d, w=at.out)
    at.give_map(exponent, "w*(d - x/c)", w=at.out, d=at.d, x=(inner, kept), c=scale)
    if at.wants(scale):
        ratio = at.map(f"{inner}_ratio", kept, "x/c", x=(inner, kept), c=scale)
        at.give(scale, at.summed(at.name(scale), ratio, kept, at.axes(scale)))


def entry_norm(at: At) -> None:
    """ν = ‖x‖_p: dx = d sign(x) (|x|/ν)^{p−1}."""
    (x,) = at.arguments
    power = float(at.option("power")) - 1
    shown = int(power) if power == int(power) else power
    at.give_map(x, f"d*sign(x)*(Abs(x)/n)**{shown}", d=at.d, x=x, n=at.out)


def ball(at: At) -> None:
    """w = x min(r/‖x‖, 1): inside dx = d; outside what is left of r/‖x‖ d across x."""
    x, radius = at.arguments
    axes = at.axes(x)
    lead = axes[:-2]
    size = at.call(f"{x}_size", lead, "entry_norm", x, power=2.0)
    along = _inner(at, f"{at.d}_along", "d*x", axes, lead, d=at.d, x=x)
    env: dict[str, Env] = {"d": at.d, "x": x, "r": radius, "n": (size, lead), "a": (along, lead)}
    at.give_map(x, "Piecewise((r/n*(d - x*a/n**2), n > r), (d, True))", **env)
    if at.wants(radius):
        del env["d"], env["x"]
        share = at.map(f"{along}_outside", lead, "Piecewise((a/n, n > r), (0, True))", **env)
        at.give(radius, at.summed(at.name(radius), share, lead, at.axes(radius)))


def scaled_to_norms(at: At) -> None:
    """w = x ν/‖x‖ by row or column: dx = ν (d − x (x·d)/‖x‖²)/‖x‖, dν = x·d/‖x‖."""
    x, norms = at.arguments
    axis = str(at.option("axis"))
    axes = at.axes(x)
    kept = tuple(a for a in axes if a != (set(axes[-2:]) - {axis}).pop())
    raw = at.call(f"{x}_sizes", kept, "norms_of", x, axis=axis)
    size = at.map(f"{raw}_safe", kept, f"Piecewise((s, s > {TINY}), (1, True))", s=raw)
    along = _inner(at, f"{at.d}_along", "d*x", axes, kept, d=at.d, x=x)
    at.give_map(x, "c*(d - x*a/s**2)/s", c=norms, d=at.d, x=x, a=along, s=size)
    at.give_map(norms, "a/s", a=along, s=size)


def centred(at: At) -> None:
    """w = x − mean x by row or column, a projection: dx = d − mean d."""
    (x,) = at.arguments
    at.give_call(x, "centred", at.d, axis=at.option("axis"))


def norms_of(at: At) -> None:
    """n = ‖x‖ by row or column: dx = d x/n, zero where x is."""
    (x,) = at.arguments
    at.give_map(x, f"Piecewise((d*x/n, n > {TINY}), (0, True))", d=at.d, x=x, n=at.out)


def newton_schulz(at: At) -> None:
    """Back through every step."""
    (x,) = at.arguments
    at.give_call(x, "newton_schulz_vjp", at.d, x, steps=at.option("steps"))


# -- memories row by row ---------------------------------------------------------------------


def accumulate(at: At) -> None:
    """M_t = Σ_s w_ts u_s k_sᵀ: with X_s = Σ_t w_ts dM_t, du = X k and dk = Xᵀ u."""
    weights, u, k = at.arguments
    if at.wants(u, k):
        name = f"{at.d}_gathered"
        x = at.call(name, (at.axes(u)[0], "v", "k"), "gathered_states", weights, at.d)
        at.give_call(u, "recall", x, k)
        at.give_call(k, "pull", x, u)
    at.give_call(weights, "pairings", at.d, u, k)


def accumulate_states(at: At) -> None:
    """M_t = Σ_s w_ts X_s."""
    weights, states = at.arguments
    at.give_call(states, "gathered_states", weights, at.d)
    at.give_call(weights, "state_products", at.d, states)


def last_of(at: At) -> None:
    """The last row's matrix."""
    (x,) = at.arguments
    at.give_call(x, "at_last_of", at.d, x)


def delayed_states(at: At) -> None:
    """The state before each row."""
    x, first = at.arguments
    at.give_call(x, "advanced_states", at.d)
    at.give_call(first, "first_of", at.d)


def replaced_last(at: At) -> None:
    """Rows with the last one replaced."""
    y, last = at.arguments
    at.give_call(y, "without_last", at.d)
    at.give_call(last, "last_row", at.d)


RULES: dict[str, Callable[[At], None]] = {
    "simplex": simplex,
    "entry_norm": entry_norm,
    "ball": ball,
    "scaled_to_norms": scaled_to_norms,
    "centred": centred,
    "norms_of": norms_of,
    "newton_schulz": newton_schulz,
    "accumulate": accumulate,
    "accumulate_states": accumulate_states,
    "last_of": last_of,
    "delayed_states": delayed_states,
    "replaced_last": replaced_last,
}
