"""The retrieval SNR of kernels: how loud other pairs are beside the one that is asked for."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from mnemic.claims.claim import Told
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part
from mnemic.dsl.spec import Spec
from mnemic.pipeline import Compiled, compile

SIZES: Final = (16, 32, 64, 128, 256)
PAIRS, VALUES = 256, 32
CLOSE = 0.1
"""A measured mean agrees with a formula that it misses by no more than a tenth, or its interval."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of s = k·q in the spec's words; the paper's formula for N = 1, and the exact one.

    ``exact`` is the expectation for a key of ‖k‖² = d_k, ``drawn`` that over Gaussian keys, None
    where it has no short form.
    """

    name: str
    text: Callable[[int], str]
    printed: Callable[[int], float]
    exact: Callable[[int], float]
    drawn: Callable[[int], float] | None = None


def _exponential(d: int) -> float:
    tau = math.sqrt(d)
    return math.exp(-2 * (tau - 1) / tau**2 * d)


KERNELS: Final = (
    Kernel("linear", lambda d: "s", lambda d: 1 / d, lambda d: 1 / d),
    Kernel("relu", lambda d: "max(s, 0)", lambda d: 1 / (2 * d), lambda d: 1 / (2 * d)),
    Kernel("exp", lambda d: f"exp(s/sqrt({d}))", _exponential, _exponential,
           lambda d: (1 + 4 * (math.sqrt(d) - 1) / d) ** (-d / 2)),
    Kernel("SoLU", lambda d: f"s*exp(s/sqrt({d}))",
           lambda d: 5 / (d * math.exp(2 * math.sqrt(d))),
           lambda d: 5 / d * math.exp(-2 * (math.sqrt(d) - 1))),
)  # fmt: skip


def run(seeds: int, quick: bool, told: Told) -> Outcome:
    """Measure SNR⁻¹ of four kernels by compiled memories, against the printed formulas."""
    sizes = SIZES[:2] if quick else SIZES
    draws = 4 if quick else 64
    fixed, free = {}, {}
    for kernel in KERNELS:
        for d in sizes:
            told(f"{kernel.name}, d_k = {d}")
            memory = compile(_spec(kernel.text(d)))
            fixed[kernel.name, d] = [_measured(memory, d, draws, s, True) for s in range(seeds)]
            free[kernel.name, d] = [_measured(memory, d, draws, s, False) for s in range(seeds)]
    parts = [part for kernel in KERNELS for part in _parts(kernel, sizes, fixed, free)]
    panels = tuple(_panel(kernel, sizes, fixed, free) for kernel in KERNELS)
    told_sizes = {"N": PAIRS, "d_k": list(sizes), "d_v": VALUES, "tau": "sqrt(d_k)",
                  "draws": draws, "seeds": seeds}  # fmt: skip
    return Outcome("retrieval-snr", tuple(parts), panels, told_sizes)


def _spec(kernel: str) -> Spec:
    data = {"name": "retrieval", "features": {"kernel": kernel}, "bias": "dot"}
    return Spec.model_validate(data)


def _measured(memory: Compiled, d: int, draws: int, seed: int, fixed: bool) -> float:
    """Measure SNR⁻¹ / N of one seed, the mean of draws.

    One pair of each draw is asked for, the first; its key has ‖k‖² = d_k if ``fixed``.
    """
    rng = torch.Generator().manual_seed(seed)
    k = torch.randn(draws, PAIRS, d, generator=rng, dtype=torch.float64)
    v = torch.randn(draws, PAIRS, VALUES, generator=rng, dtype=torch.float64)
    if fixed:
        k[:, 0] *= math.sqrt(d) / k[:, 0].norm(dim=-1, keepdim=True)
    ratio = _retrieved(memory, k, v)
    return float(ratio.mean()) / (PAIRS - 1)


def _retrieved(memory: Compiled, k: Tensor, v: Tensor) -> Tensor:
    """Return ‖r‖² / (c² ‖v‖²) of each draw: the other pairs' noise where the first is asked."""
    q = k[:, :1].expand_as(k)
    noise = _last(memory, q, k, _without_first(v))
    signal = _last(memory, q[:, :1], k[:, :1], v[:, :1])
    return noise.square().sum(-1) / signal.square().sum(-1)


def _without_first(v: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(v[:, :1]), v[:, 1:]], 1)


def _last(memory: Compiled, *vectors: Tensor) -> Tensor:
    with torch.no_grad():
        found: Any = memory(*(x[:, :, None] for x in vectors))
    out: Tensor = (found[0] if isinstance(found, tuple) else found)[:, -1, 0]
    return out


def _parts(kernel: Kernel, sizes: tuple[int, ...], fixed: Any, free: Any) -> list[Part]:
    d = sizes[-1]
    got = fixed[kernel.name, d]
    says = f"{kernel.name}: the printed SNR⁻¹ at a key of ‖k‖² = d_k"
    factor = mean(got) / kernel.printed(d)
    off = f"by {kernel.exact(d) / kernel.printed(d):.3g} at d_k = {d}"
    why = "" if _near(got, kernel.printed(d)) else f"the exact expectation differs {off}"
    parts = [Part(says, _near(got, kernel.printed(d)),
                  f"d_k = {d}: measured {shown(got)} N, printed {kernel.printed(d):.3g} N, "
                  f"a factor of {factor:.2f}", why)]  # fmt: skip
    if kernel.drawn is not None:
        d = sizes[1]
        got = free[kernel.name, d]
        parts.append(Part(
            f"{kernel.name}: the same formula for keys drawn at random",
            _near(got, kernel.printed(d)),
            f"d_k = {d}: measured {shown(got)} N, printed {kernel.printed(d):.3g} N, "
            f"exact {kernel.drawn(d):.3g} N",
            "the mean of exp(−a‖k‖²) over Gaussian keys is (1 + 2a)^(−d/2), larger than "
            "exp(−a d): short keys weigh most",
        ))  # fmt: skip
    return parts


def _near(values: list[float], wanted: float) -> bool:
    half = spread(values)
    return abs(mean(values) - wanted) <= max(
        CLOSE * wanted, half if math.isfinite(half) and half < 0.3 * wanted else 0.0
    )


def _panel(kernel: Kernel, sizes: tuple[int, ...], fixed: Any, free: Any) -> Panel:
    x = tuple(float(d) for d in sizes)

    def curve(label: str, found: Any) -> Curve:
        values = [found[kernel.name, d] for d in sizes]
        return Curve(label, x, tuple(map(mean, values)), tuple(map(spread, values)))

    curves = (
        Curve("printed", x, tuple(map(kernel.printed, sizes)), printed=True),
        curve("measured, ‖k‖² = d_k", fixed), curve("measured, Gaussian k", free),
    )  # fmt: skip
    return Panel(kernel.name, "d_k", "SNR⁻¹ / N", curves, "xy")
