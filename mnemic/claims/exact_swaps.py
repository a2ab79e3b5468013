"""Theorem 1: swaps followed without any training, by a kernel that rounds."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from mnemic.claims.claim import Told
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part
from mnemic.dsl.spec import Spec
from mnemic.pipeline import Compiled, compile

DIM, VALUES, STATES = 1024, 3, 10
SWAPS: Final = (16, 64, 256, 1024)
KERNELS: Final = {"κ = round(k·q)": "round(s)", "κ = k·q": "s"}
LARGEST_PRODUCT = 1 / 8
"""The theorem's first assumption: how far from right angles two keys may be."""


@dataclass(frozen=True)
class Swapped:
    """Vectors to run, and what each read after a swap should give."""

    q: Tensor
    k: Tensor
    v: Tensor
    expected: Tensor


def run(seeds: int, quick: bool, told: Told) -> Outcome:
    """Follow ever more swaps of ten states, with a rounded kernel and a linear one."""
    counts = SWAPS[:2] if quick else SWAPS
    right: dict[str, dict[int, list[float]]] = {}
    for label, kernel in KERNELS.items():
        memory = compile(spec_of(kernel))
        for count in counts:
            told(f"{label}, {count} swaps")
            found = [_share(memory, drawn(STATES, count, seed)) for seed in range(seeds)]
            right.setdefault(label, {})[count] = found
    rounded, linear = right.values()
    last = counts[-1]
    parts = (
        Part("with keys nearly at right angles and integer rounding n states are followed through "
             "any number of swaps, without training",
             all(min(values) == 1 for values in rounded.values()),
             f"{STATES} states, {DIM} channels: every read after up to {last} swaps exact"),
        Part("without rounding the same keys lose track", mean(linear[last]) < 0.5,
             f"after {last} swaps {shown(linear[last])} of all reads within 1/2"),
    )  # fmt: skip
    panel = Panel("reads that are right", "swaps", "share of reads", tuple(
        Curve(label, tuple(map(float, counts)), tuple(mean(own[c]) for c in counts),
              tuple(spread(own[c]) for c in counts))
        for label, own in right.items()
    ), "x")  # fmt: skip
    sizes = {"states": STATES, "d_k": DIM, "d_v": VALUES, "swaps": list(counts), "seeds": seeds}
    return Outcome("exact-swaps", parts, (panel,), sizes)


def drawn(states: int, swaps: int, seed: int) -> Swapped:
    """Draw states with integer values, then swaps; after each swap one state is asked for.

    The keys are unit vectors no two of which have an inner product above 1/8. A swap of i and j
    writes the key k_i − k_j with the value 0.
    """
    rng = torch.Generator().manual_seed(seed)
    keys = _draw_separate_keys(states, rng)
    values = torch.randint(-9, 10, (states, VALUES), generator=rng).double()
    held = values.clone()
    k, v, q, expected = list(keys), list(values), [keys[0]] * states, list[Tensor]()
    for _ in range(swaps):
        first, second = torch.randperm(states, generator=rng)[:2].tolist()
        held[[first, second]] = held[[second, first]]
        k.append(keys[first] - keys[second])
        v.append(torch.zeros(VALUES, dtype=torch.float64))
        asked = int(torch.randint(states, (1,), generator=rng))
        q.append(keys[asked])
        expected.append(held[asked].clone())
    return Swapped(torch.stack(q), torch.stack(k), torch.stack(v), torch.stack(expected))


def _draw_separate_keys(states: int, rng: torch.Generator) -> Tensor:
    """Draw random unit vectors that meet the theorem's first assumption."""
    while True:
        keys = torch.randn(states, DIM, generator=rng, dtype=torch.float64)
        keys = keys / keys.norm(dim=-1, keepdim=True)
        products = keys @ keys.T - torch.eye(states, dtype=torch.float64)
        if float(products.abs().max()) < LARGEST_PRODUCT:
            return torch.as_tensor(keys)


def spec_of(kernel: str) -> Spec:
    """Return the spec of a delta rule with a kernel."""
    data = {"name": "swaps", "features": {"kernel": kernel}, "bias": "l2"}
    return Spec.model_validate(data)


def _share(memory: Compiled, told: Swapped) -> float:
    """Return the share of reads after a swap whose every entry is within 1/2 of the right one."""
    with torch.no_grad():
        out: Tensor = memory(*(x[None, :, None] for x in (told.q, told.k, told.v)))[0]
    read = out[0, -len(told.expected) :, 0]
    right: Tensor = ((read - told.expected).abs() < 0.5).all(-1)
    return float(right.double().mean())
