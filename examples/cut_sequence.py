"""One long text cut across processes: each trains on its part, behind the states of the one before.

    torchrun --nproc-per-node 2 examples/cut_sequence.py
    torchrun --nproc-per-node 2 examples/cut_sequence.py --spec titans --tokens 8192

Every process prints its share of the tokens and the most memory that it has had; the losses are
those of `--nproc-per-node 1`.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import mnemic
from mnemic.distributed import along_sequence, part, shifted

BYTES = 256


class Model(nn.Module):
    """h = x + memory(norm(x)), block after block, on a part of the sequence."""

    def __init__(self, spec: str, dim: int, blocks: int) -> None:
        super().__init__()
        rule = mnemic.compile(spec)
        self.embedding = nn.Embedding(BYTES, dim)
        self.norms = nn.ModuleList(nn.RMSNorm(dim) for _ in range(blocks))
        self.memories = nn.ModuleList(along_sequence(rule.layer(dim)) for _ in range(blocks))
        self.head = nn.Linear(dim, BYTES)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for norm, memory in zip(self.norms, self.memories, strict=True):
            x = x + memory(norm(x))
        return self.head(x)


def train(spec: str, tokens: int, dim: int, blocks: int, steps: int) -> list[float]:
    """Return the loss of each step, in nats a byte; the same in every process."""
    torch.manual_seed(0)  # the same parameters everywhere
    model = DistributedDataParallel(Model(spec, dim, blocks))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = Path(argparse.__file__).read_bytes()[:tokens]
    ids = torch.tensor([list(text)])
    labels = part(shifted(ids))  # a part's last byte is scored against the next part's first
    ids, count = part(ids), len(text) - 1
    losses = []
    for _ in range(steps):
        nats = F.cross_entropy(model(ids)[0], labels[0], reduction="sum")
        optimizer.zero_grad()
        # DDP gives the mean of all processes' gradients, and their sum is wanted
        (nats / count * distributed.get_world_size()).backward()
        optimizer.step()
        total = nats.detach().clone()
        distributed.all_reduce(total)
        losses.append(total.item() / count)
    return losses


def main() -> None:
    """Train, and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", default="gated-deltanet")
    for name, default in (("tokens", 4096), ("dim", 128), ("blocks", 4), ("steps", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(1)
    store = None if "RANK" in os.environ else distributed.HashStore()  # else without torchrun
    alone = {} if store is None else {"store": store, "rank": 0, "world_size": 1}
    distributed.init_process_group("gloo", **alone)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    losses = train(**vars(options))
    seconds = (time.perf_counter() - began) / options.steps
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    rank, size = distributed.get_rank(), distributed.get_world_size()
    share = f"process {rank} of {size}: {options.tokens // size} tokens"
    told = ", ".join(f"{loss:.6f}" for loss in losses)
    print(f"{share}, {more:,.0f} MiB more memory, {seconds:.2f} s a step; losses {told}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
