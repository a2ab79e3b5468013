"""How many independent pairs a matrix can hold: d_k, and with polynomial features C(d_k + p, p)."""

import math
from typing import Any, Final

import torch

from mnemic.claims.claim import Told
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part
from mnemic.dsl.spec import Spec
from mnemic.pipeline import Compiled, compile

CASES: Final = ((4, 1), (8, 1), (16, 1), (4, 2), (6, 2), (8, 2), (4, 3), (5, 3))
"""Dimensions of keys, and degrees of polynomial features."""
RIDGE, EXACT = 1e-10, 1e-6
"""The ridge of the least squares, and the largest relative error of what is held."""


def run(seeds: int, quick: bool, told: Told) -> Outcome:
    """Solve for the best matrix over ever more random pairs, and see when not all are held."""
    cases = CASES[:1] if quick else CASES
    found: dict[tuple[int, int], list[int]] = {}
    curves = []
    for d, p in cases:
        told(f"d_k = {d}, degree {p}")
        memory, size = compile(_spec(p)), math.comb(d + p, p)
        size = d if p == 1 else size
        counts = sorted({1, size // 2, size - 1, size, size + 1, size + 2, 2 * size} - {0})
        errors = [[_error(memory, d, n, seed) for seed in range(seeds)] for n in counts]
        found[d, p] = [max(n for n, own in zip(counts, errors, strict=True) if own[s] < EXACT)
                       for s in range(seeds)]  # fmt: skip
        curves.append(Curve(
            f"d_k = {d}, degree {p}", tuple(n / size for n in counts),
            tuple(max(1e-12, mean(own)) for own in errors), tuple(spread(own) for own in errors),
        ))  # fmt: skip
    panel = Panel("error of what was stored", "pairs / (number of features)",
                  "|y − v|² / |v|²", tuple(curves), "y")  # fmt: skip
    sizes = {"cases (d_k, p)": [list(c) for c in cases], "d_v": 3, "ridge": RIDGE, "seeds": seeds}
    return Outcome("storage", tuple(_parts(found)), (panel,), sizes)


def _parts(found: dict[tuple[int, int], list[int]]) -> list[Part]:
    def seen(cases: list[tuple[int, int]]) -> str:
        return ", ".join(f"{shown([float(x) for x in found[c]])} of d_k = {c[0]}, p = {c[1]}"
                         for c in cases)  # fmt: skip

    plain = [c for c in found if c[1] == 1]
    powers = [c for c in found if c[1] > 1]
    parts = [Part("a matrix memory holds d_k independent pairs, and no more",
                  all(set(found[c]) == {c[0]} for c in plain), seen(plain))]  # fmt: skip
    if powers:
        parts.append(Part(
            "with polynomial features of degree p it holds C(d_k + p, p), and no more",
            all(set(found[c]) == {math.comb(sum(c), c[1])} for c in powers), seen(powers),
        ))  # fmt: skip
    return parts


def _spec(degree: int) -> Spec:
    features: Any = "identity"
    if degree > 1:
        features = {"kind": "polynomial", "degree": degree,
                    "a": [1 / math.factorial(i) for i in range(degree + 1)]}  # fmt: skip
    return Spec.model_validate({
        "name": "storage", "features": features, "bias": "l2", "window": "all",
        "retention": {"view": "ftrl", "global": {"l2": RIDGE}}, "optimizer": "exact",
    })  # fmt: skip


def _error(memory: Compiled, d: int, pairs: int, seed: int) -> float:
    """Return the relative squared error of a memory's pairs, all asked for at the end."""
    rng = torch.Generator().manual_seed(1000 * seed + pairs)
    k = torch.randn(1, pairs, 1, d, generator=rng, dtype=torch.float64)
    v = torch.randn(1, pairs, 1, 3, generator=rng, dtype=torch.float64)
    with torch.no_grad():
        _, state = memory(k, k, v, output_final_state=True, form="recurrent")
        out = memory.operator.read(k, state, sizes=(1, 3))
    return float((out - v).square().sum() / v.square().sum())
