"""How many pairs least squares and linear attention recall, untrained and in a trained layer."""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from mnemic.claims.claim import Told
from mnemic.claims.numbers import mean, shown, spread
from mnemic.claims.outcome import Curve, Outcome, Panel, Part
from mnemic.claims.trained import Budget, Learned, learned
from mnemic.pipeline import Compiled, compile

DIM: Final = 64
PAIRS: Final = (16, 32, 64, 96, 128, 192, 256)
LENGTHS: Final = (1, 2, 4)
"""How often each pair is shown before it is asked for: the sequence's length."""
SPECS: Final = {"RLS": "rls", "linear attention": "linear-attention"}
SOLVED, ROUNDS = 0.99, 60


def untrained(seeds: int, quick: bool, told: Told) -> Outcome:
    """Ask memories for pairs whose keys lie as far apart as 64 dimensions let them."""
    pairs = PAIRS[:3] if quick else PAIRS
    scores: dict[tuple[str, int, int], list[float]] = {}
    for label, name in SPECS.items():
        memory = compile(name)
        for count in pairs:
            told(f"{label}, {count} pairs")
            for repeats in LENGTHS:
                found = [_recalled(memory, count, repeats, seed, quick) for seed in range(seeds)]
                scores[label, count, repeats] = found
    panels = tuple(
        Panel(f"each pair shown {repeats} times", "pairs", "pairs recalled", tuple(
            Curve(label, tuple(map(float, pairs)),
                  tuple(mean(scores[label, c, repeats]) for c in pairs),
                  tuple(spread(scores[label, c, repeats]) for c in pairs))
            for label in SPECS
        ), "x") for repeats in LENGTHS
    )  # fmt: skip
    sizes = {"d": DIM, "pairs": list(pairs), "repeats": list(LENGTHS), "seeds": seeds}
    return Outcome("recall", () if quick else _parts(scores), panels, sizes)


def _parts(scores: Mapping[tuple[str, int, int], list[float]]) -> tuple[Part, ...]:
    def all_of(label: str, count: int) -> bool:
        return all(mean(scores[label, count, r]) >= SOLVED for r in LENGTHS)

    def seen(label: str, count: int) -> str:
        told = ", ".join(f"{shown(scores[label, count, r])} at {2 * count * r} tokens"
                         for r in LENGTHS)  # fmt: skip
        return f"{label} recalls {told}"

    both, many = DIM, 2 * DIM
    return (
        Part(f"both recall {both} pairs in {DIM} dimensions, at any length",
             all_of("RLS", both) and all_of("linear attention", both),
             f"{seen('RLS', both)}; {seen('linear attention', both)}"),
        Part(f"least squares recalls {many} pairs", all_of("RLS", many), seen("RLS", many)),
        Part(f"linear attention does not recall {many} pairs", not all_of("linear attention", many),
             seen("linear attention", many),
             "with unit keys as far apart as can be the nearest value is still the right one: "
             "the read-out is noisy, and is told apart all the same"),
    )  # fmt: skip


def _recalled(memory: Compiled, count: int, repeats: int, seed: int, quick: bool) -> float:
    """Show all pairs, then return the share whose own value is the nearest to the read-out."""
    rng = torch.Generator().manual_seed(seed)
    keys = spread_out(count, DIM, rng, 2 if quick else ROUNDS)
    values = spread_out(count, DIM, rng, 0)
    order = torch.cat([torch.randperm(count, generator=rng) for _ in range(repeats)])
    k, v = keys[order], values[order]
    q = torch.zeros_like(k)
    asked = torch.arange(count)
    q = torch.cat([q, keys[asked]])
    k, v = (torch.cat([x, torch.zeros(count, DIM, dtype=x.dtype)]) for x in (k, v))
    with torch.no_grad():
        out = memory(*(x[None, :, None] for x in (q, k, v)))[0][0, -count:, 0]
    scores = out @ values.T
    return float((scores.argmax(-1) == asked).double().mean())


def spread_out(count: int, dim: int, rng: torch.Generator, rounds: int) -> Tensor:
    """Return unit vectors, after ``rounds`` steps that make the largest inner products smaller.

    As many as dimensions end at right angles; these are what training can make of embeddings.
    """
    x: Tensor = torch.randn(count, dim, generator=rng, dtype=torch.float64)
    x = x / x.norm(dim=-1, keepdim=True)
    if rounds and count <= dim:
        return torch.as_tensor(torch.linalg.qr(x.T)[0].T.contiguous())
    for _ in range(rounds):
        products = x @ x.T - torch.eye(count, dtype=x.dtype)
        x = x - 0.3 * (products.abs() ** 3 * products.sign()) @ x * dim / count
        x = x / x.norm(dim=-1, keepdim=True)
    return x


# -- a trained layer --------------------------------------------------------------------------

SMALL: Final = 16
"""Dimensions of the trained models: a quarter of the paper's, as are its numbers of pairs."""
PLAIN: Final[Mapping[str, Any]] = {
    "heads": 1, "key_dim": SMALL, "value_dim": SMALL, "convolution": 2, "activation": "x",
    "output_norm": "none", "gate": "none", "feed_forward": "none",
}  # fmt: skip


def trained(seeds: int, quick: bool, told: Told) -> Outcome:
    """Train one layer with a convolution of two taps and no feed-forward on recall."""
    from mnemic.search.tasks import get

    budget = Budget(steps=2 if quick else 800, every=1 if quick else 100, dim=SMALL, batch=32,
                    lr=1e-2, heads=1, feed_forward="none", block=PLAIN)  # fmt: skip
    counts = (SMALL,) if quick else (SMALL, 2 * SMALL)
    runs: dict[tuple[str, int, int], list[Learned]] = {}
    for label, name in SPECS.items():
        for pairs in counts:
            for length in _lengths(pairs):
                task = get("mqar").configure(
                    {"pairs": pairs, "length": length, "vocabulary": 2 * pairs * 2 + 2}
                )
                for seed in range(seeds):
                    told(f"{label}, {pairs} pairs in {length} tokens, seed {seed}")
                    one = learned(name, task, budget, seed)
                    runs.setdefault((label, pairs, length), []).append(one)
                    told(f"  {one.last:.3f} after {one.steps[-1:]} steps")
    panels = tuple(
        Panel(f"{pairs} pairs in {length} tokens", "steps", "accuracy", tuple(
            _learning(label, runs[label, pairs, length]) for label in SPECS))
        for pairs in counts for length in _lengths(pairs)
    )  # fmt: skip
    sizes = {"d": SMALL, "pairs": list(counts), "steps": budget.steps, "batch": budget.batch,
             "lr": budget.lr, "seeds": seeds, "vocabulary": "4 pairs + 2"}  # fmt: skip
    return Outcome("recall-trained", () if quick else _learned_parts(runs), panels, sizes)


def _lengths(pairs: int) -> tuple[int, ...]:
    """Return the lengths of sequences: the shortest, and for few pairs twice as long."""
    return (4 * pairs, 8 * pairs) if pairs == SMALL else (4 * pairs,)


def _learned_parts(runs: Mapping[tuple[str, int, int], list[Learned]]) -> tuple[Part, ...]:
    def last(label: str, pairs: int, length: int) -> list[float]:
        return [run.last for run in runs[label, pairs, length]]

    def shares(label: str, pairs: int) -> str:
        return ", ".join(f"{label} {shown(last(label, pairs, n))} in {n} tokens"
                         for n in _lengths(pairs))  # fmt: skip

    def solved(label: str, pairs: int) -> bool:
        return all(mean(last(label, pairs, n)) >= SOLVED for n in _lengths(pairs))

    few, many = SMALL, 2 * SMALL
    return (
        Part(f"both solve {few} pairs in {SMALL} dimensions, at either length",
             (solved("RLS", few) and solved("linear attention", few)) or None,
             f"{shares('RLS', few)}; {shares('linear attention', few)}"),
        Part(f"least squares solves {many} pairs", solved("RLS", many) or None,
             shares("RLS", many)),
        Part(f"linear attention does not solve {many} pairs", not solved("linear attention", many),
             shares("linear attention", many)),
        Part(f"least squares does better than linear attention at {many} pairs",
             _above([last("RLS", many, n) for n in _lengths(many)],
                    [last("linear attention", many, n) for n in _lengths(many)]),
             f"{shares('RLS', many)}; {shares('linear attention', many)}"),
    )  # fmt: skip


def _above(ours: list[list[float]], theirs: list[list[float]]) -> bool | None:
    """Return whether each of our worst runs is above their best; None where runs mix."""
    pairs = list(zip(ours, theirs, strict=True))
    if all(min(one) > max(other) for one, other in pairs):
        return True
    return False if all(max(one) < min(other) for one, other in pairs) else None


def _learning(label: str, runs: list[Learned]) -> Curve:
    from mnemic.claims.trained import curve

    return curve(label, runs)
