"""What is measured: a row a rule and size, with the peers that compute the same or the like."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Row:
    """One line of the results.

    Args:
        name: of the row.
        spec: of the folder that ``prepare`` compiles.
        batch, tokens, heads, width: sizes, d_k = d_v.
        peers: names in ``peers.PEERS``.
        decode: one token from a state instead of a sequence.
        compiled: whether torch.compile of the chunk form is a peer (it compiles for minutes).
        own: a row of our own to stand beside, and how many times its time is allowed.
        goal: how many times faster than flash-linear-attention is asked for.
        products: operations of matrix products a token and head, forward, where the share of the
            device's peak is asked for.
    """

    name: str
    spec: str
    batch: int
    tokens: int
    heads: int
    width: int = 128
    peers: tuple[str, ...] = ()
    decode: bool = False
    compiled: bool = False
    own: tuple[str, float] | None = None
    goal: float = 1.0
    products: int = 0

    def small(self) -> "Row":
        """The same at a size for a dry run."""
        batch = min(self.batch, 2)
        return Row(
            self.name, self.spec, batch, 1 if self.decode else 40, 2, 16, self.peers,
            self.decode, False, self.own, self.goal, self.products,
        )  # fmt: skip


LARGE: Final = (8, 4096, 32)
LONG: Final = (1, 8192, 8)

SPECS: Final[Mapping[str, Any]] = {
    "titans-64": {
        "mnemic": 1, "name": "titans-64", "extends": "titans",
        "optimizer": {"anchor": {"chunk": 64}},
    },
    "delta-scalar": {
        "mnemic": 1, "name": "delta-scalar", "bias": "l2",
        "retention": {"decay": "token", "order": "after"}, "optimizer": {"rate": "token"},
    },
}  # fmt: skip
"""Specs that no catalogue has."""

ROWS: Final = (
    Row("linear", "linear-attention", *LARGE, peers=("fla", "sdpa"), goal=1.5),
    Row("retention", "retnet", *LARGE, peers=("fla",), goal=1.5),
    Row("mamba2-like", "mamba2", *LARGE, peers=("fla",), goal=1.5),
    Row("gla", "gla", *LARGE, peers=("fla",), goal=1.5),
    Row("gated delta", "gated-deltanet", *LARGE, peers=("fla", "sdpa")),
    Row("gated delta, long", "gated-deltanet", *LONG, peers=("fla", "sdpa")),
    Row("kda-like", "kda", *LARGE, peers=("fla",)),
    Row("delta, decay after", "delta-scalar", *LARGE),
    Row("huber", "huber-coordinate", *LARGE, own=("delta, decay after", 2.0)),
    Row(
        "titans, two layers",
        "titans-64",
        8,
        4096,
        16,
        64,
        compiled=True,
        products=6 * 256 * 128 + 2 * 256 * 64 + 2 * 64 * (64 + 2 * 256 + 64),
    ),
    Row("least squares", "rls-geometric", *LARGE, peers=("fla",)),
    Row("deltaformer", "deltaformer", *LONG, peers=("fla", "sdpa"), goal=2.0),
    Row("gated softmax", "gated-softmax", *LONG, peers=("flex", "sdpa")),
    Row("decode, batch 1", "gated-deltanet", 1, 1, 32, peers=("fla",), decode=True),
    Row("decode, batch 256", "gated-deltanet", 256, 1, 32, peers=("fla",), decode=True),
)


def named(names: list[str]) -> tuple[Row, ...]:
    """The rows whose name contains one of the words; all, without words."""
    return tuple(r for r in ROWS if not names or any(word in r.name for word in names))
