"""Three memory layers to one of attention: what each model recalls, and what it keeps to do so.

    .venv/bin/python examples/hybrid.py

A passage of random tokens comes twice. Attention copies it from its keys and values, which grow
with the text; a memory has a state of one size; the hybrid has one layer that grows among three
that do not. With these sizes and steps, the losses in nats come to 2.8, 1.6 and 0.01.
"""

import argparse
import json

import torch
from torch import Tensor, nn

from mnemic.hf.build import make_config, make_model
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.pattern import sources
from mnemic.hf.shape import Shape

MODELS = {
    "memory": "gated-deltanet",
    "hybrid": "gated-deltanet*3, softmax-attention",
    "attention": "softmax-attention",
}
VOCABULARY = 16


def twice(rows: int, length: int, generator: torch.Generator) -> Tensor:
    """Return rows of a random passage that comes twice, [rows, 2 length]."""
    passage = torch.randint(VOCABULARY, (rows, length), generator=generator)
    return torch.cat([passage, passage], 1)


def train(model: MnemicForCausalLM, steps: int, length: int) -> float:
    """Train on passages that come twice; return the last steps' loss, of the second time alone."""
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    losses = []
    for _ in range(steps):
        rows = twice(16, length, generator)
        labels = rows.clone()
        labels[:, : length + 1] = -100  # nothing foretells the first time
        loss = model(rows, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    last = losses[-max(1, steps // 10) :]
    return sum(last) / len(last)


def kept(model: MnemicForCausalLM, tokens: int) -> int:
    """Return the bytes of the model's cache after so many tokens."""
    rows = torch.zeros(1, tokens, dtype=torch.long)
    with torch.no_grad():
        return model.eval()(rows, use_cache=True).cache.nbytes


def run(steps: int, dim: int, length: int) -> dict[str, dict[str, float]]:
    """Train each model; return its loss and its cache's bytes after 100 and 1000 tokens."""
    found = {}
    for name, pattern in MODELS.items():
        shape = Shape(4, dim, heads=2, vocabulary=VOCABULARY)
        model = make_model(make_config(sources(pattern), shape), seed=0)
        found[name] = {
            "loss": train(model.train(), steps, length),
            "bytes after 100": kept(model, 100),
            "bytes after 1000": kept(model, 1000),
        }
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--length", type=int, default=16)
    print(json.dumps(run(**vars(parser.parse_args())), indent=2))
