"""Reachability: which nodes of a directed graph the first one leads to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mnemic.errors import Issue
from mnemic.search.tasks.base import IGNORED, Batch, Split, Task
from mnemic.search.tasks.options import Options, choice, number, refuse


@dataclass(frozen=True)
class ReachabilityOptions(Options):
    """The options of `Reachability`; the defaults are the published ones."""

    nodes: int = number(32, 4, 512, "nodes, even: half of them in each tree")
    tokens: str = choice("pair", ("pair", "two"), "node and parent as one token, or as two")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nodes % 2:
            refuse([Issue("two equal trees need an even number", "nodes", str(self.nodes))])


class Reachability(Task[ReachabilityOptions]):
    """Say of each node whether the first node leads to it.

    Two trees of n/2 nodes each; the nodes in an order in which parents precede their children,
    the two trees mixed at random, and with labels at random. Each node comes with its parent's
    label, a root with its own; the answer, yes or no, is due at once. The first node, always
    reached, is not scored; with as many yes as no but for it, no constant answer does well.

    As published (section 3.3, figure 7): 32 nodes, two trees, only the parent told. Left open
    there and chosen here: the trees grow by uniform attachment (each node's parent is any
    earlier node of its tree, which makes paths of about ln n steps), a node and its parent are
    one token, ``tokens="two"`` makes them two with the answer due at the second, and the second
    root is scored (never reached).
    """

    name = "reachability"
    title = "reachability in a directed acyclic graph"
    source = "Zhong et al. 2025, Transformer as associative memory, section 3.3, figure 7"
    options_type = ReachabilityOptions
    ladder: ClassVar = {
        "tiny": {"nodes": 8},
        "small": {"nodes": 16},
        "published": {},
        "large": {"nodes": 64},
    }

    @property
    def vocabulary(self) -> int:
        """The number of tokens: no, yes, n labels of nodes or n² pairs of (node, parent)."""
        n = self.options.nodes
        return 2 + (n * n if self.options.tokens == "pair" else n)

    @property
    def chance(self) -> float:
        """The score of always no: of the n - 1 scored nodes, n/2 are in the other tree."""
        n = self.options.nodes
        return n / 2 / (n - 1)

    def batch(self, generator: torch.Generator, size: int, split: Split) -> Batch:
        """Draw ``size`` fresh sequences, [size, n] or [size, 2n]."""
        n = self.options.nodes
        tree = _halves(generator, size, n)
        labels = torch.rand(size, n, generator=generator).argsort(1)
        parents = labels.gather(1, _parents(generator, tree))
        answers = (tree == tree[:, :1]).long()
        answers[:, 0] = IGNORED
        if self.options.tokens == "pair":
            return Batch(2 + labels * n + parents, answers)
        inputs = 2 + torch.stack([labels, parents], -1).flatten(1)
        targets = torch.stack([torch.full_like(answers, IGNORED), answers], -1).flatten(1)
        return Batch(inputs, targets)

    def word(self, token: int) -> str:
        """Return a token's word: ``no``, ``yes``, ``7<3`` for node 7 under 3, or a label alone."""
        if token < 2:
            return ("no", "yes")[token]
        n = self.options.nodes
        if self.options.tokens == "two":
            return str(token - 2)
        node, parent = divmod(token - 2, n)
        return f"{node}<{parent}" if node != parent else f"{node} root"


def _halves(generator: torch.Generator, size: int, n: int) -> Tensor:
    """Draw which n/2 of n places are in the first of two trees, [size, n], bool."""
    return torch.rand(size, n, generator=generator).argsort(1) < n // 2


def _parents(generator: torch.Generator, tree: Tensor) -> Tensor:
    """Draw each node's parent, [size, n]: a place, uniform over earlier ones of its tree."""
    places = torch.arange(tree.shape[1])
    earlier = (tree[:, :, None] == tree[:, None, :]) & (places < places[:, None])
    found = (earlier * (1 + torch.rand(earlier.shape, generator=generator))).argmax(-1)
    return torch.where(earlier.any(-1), found, places)
