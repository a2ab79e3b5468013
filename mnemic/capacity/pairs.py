"""How many pairs a memory holds: by Monte Carlo, and by formula where there is one.

Keys are random unit vectors (Gaussian where the spec's block does not norm them), values N(0, 1).
After n pairs the memory is queried with all n keys. A pair is recalled if its own value is, by
cosine, the nearest of all n values to the read-out. The error is the squared error that remains
when all read-outs are scaled by the best common factor, relative to the values' squares: 0 for a
perfect memory, 1 for one whose read-outs carry no information.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mnemic.bench.started import Tensors
from mnemic.capacity.formula import features, hebbian, least
from mnemic.capacity.inputs import random_pairs
from mnemic.errors import UsageError
from mnemic.pipeline import Compiled, derive

SHARE = 0.95
"""Pairs are held while this share of them is recalled."""


@dataclass(frozen=True)
class Held:
    """Shares of pairs recalled and errors, by number of pairs, means over draws.

    ``predicted`` is the error of a memory of the dot loss by its kernel; ``bound`` the least error
    of any memory that is linear in ``features`` features. None where there is no formula.
    """

    spec: str
    dim: int
    pairs: tuple[int, ...]
    recalled: tuple[float, ...]
    errors: tuple[float, ...]
    predicted: tuple[float, ...] | None
    bound: tuple[float, ...] | None
    features: int | None
    draws: int

    @property
    def held(self) -> int:
        """The largest number tried before less than 95 % of the pairs are recalled."""
        best = 0
        for count, share in zip(self.pairs, self.recalled, strict=True):
            if share < SHARE:
                break
            best = count
        return best

    @property
    def all_held(self) -> bool:
        """Whether all numbers tried are held, so that the capacity may be larger."""
        return self.held == self.pairs[-1]

    @property
    def held_in_words(self) -> str:
        """What is held: the number, ``64 or more``, or ``fewer than 16``, the least tried."""
        if not self.held:
            return f"fewer than {self.pairs[0]}"
        return f"{self.held} or more" if self.all_held else str(self.held)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "held": self.held, "all_held": self.all_held}


def held(compiled: Compiled, dim: int = 32, most: int = 256, draws: int = 4) -> Held:
    """Measure a memory of one head of ``dim`` channels at numbers of pairs up to ``most``.

    Raises:
        UsageError: a rule whose memory can be read only while it is written.
    """
    rule = compiled.operator
    if getattr(rule, "reader", rule.read) is None:  # slots are read by their two memories
        raise UsageError(f"{rule.name}: recall needs reads without a write, which this rule lacks")
    counts = tuple(_counts(rule.signature, most))
    rows = [list(_measured(compiled, counts, dim, seed)) for seed in range(draws)]
    table = torch.tensor(rows, dtype=torch.float64).mean(0)
    derived = derive(compiled.spec)
    size = features(rule.signature, derived, dim)
    return Held(
        rule.name, dim, counts, tuple(table[:, 0].tolist()), tuple(table[:, 1].tolist()),
        hebbian(derived, dim, counts), None if size is None else least(size, counts), size, draws,
    )  # fmt: skip


def _counts(signature: Any, most: int) -> Iterator[int]:
    """Yield numbers of pairs, two for each doubling, in whole chunks of an anchor."""
    most = signature.at_most(most)
    every, seen = signature.anchor, 0
    for exponent in range(2 * most.bit_length() + 2):
        count = round(2 ** (exponent / 2))
        count = every * -(-count // every)
        if seen < count <= most and count > 1:
            seen = count
            yield count


def _measured(
    compiled: Compiled, counts: tuple[int, ...], dim: int, seed: int
) -> Iterator[tuple[float, float]]:
    """Yield the share recalled and the error at each number of pairs, of one draw."""
    given, params = random_pairs(compiled, counts[-1], dim, seed)
    options: dict[str, Any] = {"params": params} if params else {}
    state: Tensors | None = None
    done = 0
    for count in counts:
        own = {name: x[:, done:count] for name, x in given.items()}
        with torch.no_grad():
            _, state = compiled(**own, **options, initial_state=state, output_final_state=True)
            found = _read_back(compiled, given, count, options, state)
        done = count
        yield scored(found, _flat(given["v"][:, :count])[0, :, 0])


def _read_back(
    compiled: Compiled, given: Tensors, count: int, options: dict[str, Any], state: Any
) -> Tensor:
    """Read what comes back for each key so far."""
    rule = compiled.operator
    keys = _flat(given["k"][:, :count]) * (compiled.spec.block.scale or 1.0)
    needed = {n: given[n][:, count - 1 : count].expand(-1, keys.shape[1], *given[n].shape[2:])
              for n in rule.reading}  # fmt: skip
    out = rule.read(keys, state, sizes=(1, given["v"].shape[-1]), **options, **needed)
    return torch.as_tensor(out)[0, :, 0]


def _flat(x: Tensor) -> Tensor:
    """Flatten several steps a token into so many tokens."""
    return x.flatten(1, 2) if x.ndim == 5 else x


def scored(found: Tensor, values: Tensor) -> tuple[float, float]:
    """Return the share of rows nearest to their own value, and the error after a common factor."""
    if not bool(found.isfinite().all()):
        return 0.0, 1.0
    nearest = (found @ normalize(values, dim=-1).T).argmax(-1)
    share = float((nearest == torch.arange(len(values))).double().mean())
    size, total = float(found.square().sum()), float(values.square().sum())
    along = float((found * values).sum())
    return share, 1.0 if size == 0 else 1 - along**2 / (size * total)
