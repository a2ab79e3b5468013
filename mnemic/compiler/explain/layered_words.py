"""Remarks on a memory of layers, or behind O, intervals or norms, besides its equations."""

import math
from functools import cache
from typing import Any

import sympy as sp

from mnemic.compiler.explain.dialect import Dialect, dialect
from mnemic.compiler.explain.layered_equations import groups, memory, step_map
from mnemic.compiler.explain.printing import steps_of, text
from mnemic.compiler.network import Matrix
from mnemic.compiler.rule import Layers, Rule
from mnemic.compiler.running import GRADIENT

QUINTIC = (3.4445, -4.7750, 2.0315)
"""What a Newton–Schulz iteration makes of a singular value σ: a σ + b σ³ + c σ⁵."""
POINTS = 20_000
HALF = 0.5
"""Singular values from here on count as large."""


# -- remarks -----------------------------------------------------------------------------------


def of_each_matrix(rule: Rule) -> tuple[str, ...]:
    """Say that G, S, A and W stand for those of every matrix."""
    names = [m.name for m in rule.network.matrices]
    if len(names) < 2:
        return ()
    gathers = any(m.every > 1 for m in rule.network.matrices)
    linked = rule.retained.mode != "dual" or not rule.retained.link.identity
    letters = ["G"] + ["S"] * (rule.momentum is not None or gathers)
    letters += [average.letter for average in rule.applied.averages]
    letters += ["A"] * (linked or (gathers and rule.decay != 1))
    letters += ["c"] * (rule.problem.scalar("scale1") is not None)
    told = f"Each of the matrices {_listed(names)} has {_listed([*letters, 'W'])} of its own"
    linked_apart = rule.retained.link.normaliser in ("softmax", "norm", "ball", "root")
    return (told + ("; the link acts on each by itself." if linked_apart else "."),)


def pace(rule: Rule) -> str | None:
    """Return a remark for a memory of layers that must run token by token; else ``None``."""
    found = rule.structure
    deep = isinstance(rule, Layers) or not rule.network.linear
    if not deep or found.kind != "sequential" or not found.forms:
        return None
    before = rule.problem.spec.retention.order == "before"
    needed = "optimizer.anchor: {chunk: 16}" + (" (with retention.order: after)" if before else "")
    return (
        "Every gradient sees the last token's memory, so this memory runs token by token: slow, "
        f"not wrong. {needed} makes it parallel, and changes the numbers."
    )


# -- approximations ----------------------------------------------------------------------------


def approximated(rule: Rule) -> tuple[str, ...]:
    """Return what approximates a rule of layers: the anchor, held matrices, Newton–Schulz."""
    return (*anchored(rule), *_held(rule), *_iterated(rule))


def anchored(rule: Rule) -> tuple[str, ...]:
    """Name the chunk anchor where the memory has moved since the gradient's, else nothing."""
    if rule.anchor == 1 or (rule.error.constant and rule.network.linear):
        return ()
    matrices = rule.network.matrices
    moving = [m.name for m in matrices if m.every < rule.anchor]
    if not moving:
        return ()
    told = f"chunk anchor: gradients at the memory of the last multiple of {rule.anchor}"
    if len(moving) == len(matrices):
        return (told,)
    return (f"{told} ({_listed(moving)}; the others have not moved since)",)


def _held(rule: Rule) -> tuple[str, ...]:
    slow = [group for group in groups(rule) if group[0].every > 1]
    every = len(slow) == 1 and len(slow[0]) == len(rule.network.matrices)
    return tuple(
        f"held memory: {_of(group, every=every)} at multiples of {group[0].every} tokens; "
        "between, tokens read the last one"
        for group in slow
    )


def _of(group: tuple[Matrix, ...], *, every: bool) -> str:
    if every:
        return "W moves"
    return f"{_listed([m.name for m in group])} {'moves' if len(group) == 1 else 'move'}"


def _iterated(rule: Rule) -> tuple[str, ...]:
    if rule.applied.kind != "newton-schulz":
        return ()
    count = rule.applied.steps
    low, high, least = band(count)
    times = "1 iteration takes" if count == 1 else f"{count} iterations take"
    return (
        f"Newton–Schulz: {times} a step's singular values above {least:.1g} of its "
        f"Frobenius norm to between {low:.2f} and {high:.2f}, not to 1; smaller ones stay smaller",
    )


@cache
def band(count: int) -> tuple[float, float, float]:
    """Return where ``count`` iterations take singular values in (least, 1]: low, high, least.

    ``low`` (two digits, rounded down) is the least result for the large ones; ``least`` (one
    digit, rounded up) is the smallest singular value whose result is at least ``low``.
    """
    sizes = [10 ** (4 * (i / POINTS - 1)) for i in range(POINTS + 1)]
    after = [iterated(size, count) for size in sizes]
    large = min(z for size, z in zip(sizes, after, strict=True) if size >= HALF)
    low = math.floor(100 * large) / 100
    most = max(iterated(size, 1) for size in sizes)  # whatever comes before
    below = [size for size, z in zip(sizes, after, strict=True) if z < low]
    least = max(below, default=sizes[0])
    return low, math.ceil(100 * most) / 100, _rounded_up(least)


def iterated(size: float, count: int) -> float:
    """Return a singular value after ``count`` iterations."""
    a, b, c = QUINTIC
    for _ in range(count):
        size = a * size + b * size**3 + c * size**5
    return size


def _rounded_up(size: float) -> float:
    unit = 10.0 ** math.floor(math.log10(size))
    return math.ceil(size / unit) * unit


# -- how far a matrix can move -----------------------------------------------------------------


def bounded_steps(rule: Rule) -> str:
    """Say which sizes O and norms bound whatever the errors are; sentences after a space, or
    nothing."""
    plain = rule.retained.mode == "dual" and rule.retained.link.identity
    if not plain:
        return ""
    said = ""
    if rule.applied.kind == "newton-schulz":
        rate = rule.gain * (rule.rate if rule.applied.outside else sp.Integer(1))
        most = f"{band(rule.applied.steps)[1]:.2f}"
        size = most if rate == 1 else f"{most}·{text(rate, steps_of(rule))}"
        said += f" A step moves W by at most {size} in the spectral norm, whatever the error."
    if rule.applied.elementwise:
        said += _moved_by_entry(rule)
    if rule.applied.normalize != "none":
        ends = max(rule.anchor, *(m.every for m in rule.network.matrices))
        when = "at every token" if ends == 1 else f"at multiples of {ends} tokens"
        lines = (
            f"{rule.applied.normalize}, less their means,"
            if rule.applied.centred
            else (rule.applied.normalize)
        )
        said += f" The norms of the {lines} are those of W₀ {when}."
    return said


def _moved_by_entry(rule: Rule) -> str:
    """Say by how much an entry of W moves at most: η·sup |step|, where it is known."""
    size = text(rule.gain * rule.rate, steps_of(rule))
    decays = _mean_over_root(rule)
    if decays is None:
        largest = 1 if _over_root_of_sum(rule) else _largest(rule.applied.step)
        most = None if largest is None else float(largest)
    else:
        theta, beta = decays
        if theta == 0 and not beta.is_number:
            size, most = f"{size}/√(1 − {text(beta, steps_of(rule))})", 1.0
        else:
            numbers = theta.is_number and beta.is_number
            most = largest_quotient(float(theta), float(beta)) if numbers else None
    if most is None:
        return ""
    if most == math.inf:
        return (" Nothing bounds a step: with θ² ≥ β₂ the mean of the squares forgets a large "
                "gradient sooner than the mean of the gradients does.")  # fmt: skip
    size = f"{math.ceil(100 * most) / 100:g}·{size}" if most > 1 else size
    return f" A step moves an entry of W by at most {size}, whatever the error."


def _largest(step: Any) -> Any | None:
    """Return the largest size of a bounded function such as sign, None for any other."""
    ends = {sp.sign: 1, sp.tanh: 1, sp.sin: 1, sp.cos: 1, sp.erf: 1, sp.atan: sp.pi / 2}
    return ends.get(step.func)


def _mean_over_root(rule: Rule) -> tuple[Any, Any] | None:
    """Return θ and β₂ of a step Ŝ/(√ŝ + ε), means of g by θ, of g² by β₂ (0: the newest alone)."""
    averages = {a.entry: a for a in rule.applied.averages if a.corrected}
    mean, square = averages.get(GRADIENT), averages.get(GRADIENT**2)
    above = GRADIENT if mean is None else mean.after
    below = sp.Abs(GRADIENT) if square is None else sp.sqrt(square.after)
    if not any(rule.applied.step == above / (below + symbol) for symbol, _ in rule.applied.numbers):
        return None
    nothing = sp.Integer(0)
    return (nothing if mean is None else mean.decay), (nothing if square is None else square.decay)


def _over_root_of_sum(rule: Rule) -> bool:
    """Return whether a step is g/(√s + ε), s a sum of squares of which g² is one."""
    sums = [a.after for a in rule.applied.averages if a.share == 1 and a.entry == GRADIENT**2]
    steps = [GRADIENT / (sp.sqrt(s) + e) for s in sums for e, _ in rule.applied.numbers]
    return rule.applied.step in steps


def largest_quotient(theta: float, beta: float) -> float:
    """Return sup |Ŝ_t|/√ŝ_t over gradients and t, by Cauchy and Schwarz; ∞ where θ² ≥ β₂ > 0.

    |Σ a_i G_i|² ≤ Σ a_i²/b_i · Σ b_i G_i² with the corrected weights a of S and b of s, and
    gradients along a_i/b_i reach it.
    """
    if theta == 0:
        return 1 / math.sqrt(1 - beta)
    ratio = theta**2 / beta if beta else math.inf
    if ratio >= 1:
        return math.inf
    ends = math.ceil(40 / (1 - max(theta, beta, ratio)))
    most, step = 0.0, max(1, ends // POINTS)
    for t in (*range(1, 200), *range(200, ends, step)):
        gathered = (1 - theta**t) / (1 - theta)
        spread = (1 - ratio**t) / (1 - ratio) * (1 - beta**t) / (1 - beta)
        most = max(most, spread / gathered**2)
    return math.sqrt(most)


# -- terms of a comparison ---------------------------------------------------------------------


def terms(rule: Rule) -> dict[str, str]:
    """Return M, sizes, O, intervals and norms as text, for a comparison part by part."""
    d = dialect(rule, tex=False)
    return {
        "memory": ";  ".join(line for _, line in memory(rule, d)),
        "sizes": _sizes(rule),
        "step through": _step(rule, d),
        "moves": ", ".join(f"{m.name} every {m.every}" for m in rule.network.matrices
                           if m.every > 1) or "every token",
        "norms": rule.applied.normalize + " without means" * rule.applied.centred,
    }  # fmt: skip


def _sizes(rule: Rule) -> str:
    sides = {name: f"{size:g}·d_v" if size else "1" for name, size in rule.network.widths}
    sides["v"] = "d_v"
    return ", ".join(
        f"{m.name} {sides.get(m.rows, m.rows)} × {sides.get(m.columns, m.columns)}"
        for m in rule.network.matrices
    )


def _step(rule: Rule, d: Dialect) -> str:
    name = step_map(rule, d) or "identity"
    return name + (", rate outside" if rule.applied.outside else "")


def _listed(names: list[str]) -> str:
    """Join names: ``W1``, ``W1 and W2``, ``W1, W2 and W3``."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
