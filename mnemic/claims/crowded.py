"""More states than channels, followed through swaps by a rounded kernel and by a linear one."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from mnemic.claims.claim import Told
from mnemic.claims.exact_swaps import KERNELS, spec_of
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part
from mnemic.claims.recall import spread_out
from mnemic.pipeline import Compiled, compile

DIM: Final = 128
STATES: Final = (64, 128, 256, 512)
"""The paper has 128, 256 and 512, each with twice as many swaps."""
ROUNDS: Final = 200


@dataclass(frozen=True)
class Crowd:
    """Vectors to run; ``values`` are those of the states, ``held`` what each read should find."""

    q: Tensor
    k: Tensor
    v: Tensor
    values: Tensor
    held: Tensor


def run(seeds: int, quick: bool, told: Told) -> Outcome:
    """Follow as many, twice and four times as many states as channels through swaps."""
    counts = (16, 32) if quick else STATES
    dim = 16 if quick else DIM
    right: dict[str, dict[int, list[float]]] = {label: {} for label in KERNELS}
    nearest: dict[int, float] = {}
    for count in counts:
        crowds = [crowd(count, dim, 2 * count, seed) for seed in range(seeds)]
        nearest[count] = max(_largest_product(one.k[:count]) for one in crowds)
        for label, kernel in KERNELS.items():
            told(f"{label}, {count} states in {dim} channels")
            memory = compile(spec_of(kernel))
            right[label][count] = [share(memory, one) for one in crowds]
    panel = Panel(f"d = {dim}, two swaps a state", "states", "share of reads", tuple(
        Curve(label, tuple(map(float, counts)), tuple(mean(own[c]) for c in counts),
              tuple(spread(own[c]) for c in counts))
        for label, own in right.items()
    ), "x")  # fmt: skip
    sizes = {"d": dim, "states": list(counts), "swaps": [2 * c for c in counts], "seeds": seeds,
             "largest product of two keys": [round(x, 3) for x in nearest.values()]}  # fmt: skip
    return Outcome("crowded-swaps", () if quick else _parts(right), (panel,), sizes)


def _parts(right: dict[str, dict[int, list[float]]]) -> tuple[Part, ...]:
    rounded, linear = right.values()

    def seen(own: dict[int, list[float]], counts: tuple[int, ...]) -> str:
        return ", ".join(f"{shown(own[c])} of the reads at n = {c}" for c in counts)

    few, more = tuple(c for c in STATES if c <= DIM), tuple(c for c in STATES if c > DIM)
    return (
        Part("with more states than channels the linear kernel is severely degraded",
             all(mean(linear[c]) < 0.5 for c in more), f"linear: {seen(linear, more)}"),
        Part("the rounded kernel follows more states than the linear one where n > d",
             all(min(rounded[c]) > max(linear[c]) for c in more),
             f"rounded: {seen(rounded, more)}"),
        Part("up to n = d both follow every state, with keys at right angles",
             all(min(own[c]) == 1 for own in (rounded, linear) for c in few),
             f"rounded: {seen(rounded, few)}; linear: {seen(linear, few)}"),
    )  # fmt: skip


def crowd(states: int, dim: int, swaps: int, seed: int) -> Crowd:
    """Draw keys as far apart as can be and values at random; after each swap one state is read.

    A swap of i and j writes the key k_i − k_j with the value 0. Which state is read is drawn.
    """
    rng = torch.Generator().manual_seed(seed)
    keys = spread_out(states, dim, rng, ROUNDS)
    values = spread_out(states, dim, rng, 0)
    at = torch.arange(states)
    pairs = [torch.randperm(states, generator=rng)[:2] for _ in range(swaps)]
    asked = torch.randint(states, (swaps,), generator=rng)
    held = torch.empty(swaps, dtype=torch.long)
    for step, pair in enumerate(pairs):
        at[pair] = at[pair.flip(0)]
        held[step] = at[asked[step]]
    moves = torch.stack([keys[i] - keys[j] for i, j in pairs])
    return Crowd(
        torch.cat([keys, keys[asked]]), torch.cat([keys, moves]),
        torch.cat([values, torch.zeros_like(moves)]), values, held,
    )  # fmt: skip


def share(memory: Compiled, told: Crowd) -> float:
    """Return the share of reads whose nearest value is that of the right state."""
    with torch.no_grad():
        out: Tensor = memory(*(x[None, :, None] for x in (told.q, told.k, told.v)))[0]
    read = out[0, -len(told.held) :, 0]
    return float(((read @ told.values.T).argmax(-1) == told.held).double().mean())


def _largest_product(keys: Tensor) -> float:
    return float((keys @ keys.T - torch.eye(len(keys), dtype=keys.dtype)).abs().max())
