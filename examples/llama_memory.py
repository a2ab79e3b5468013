"""Memory layers in the place of attention: a small Llama is trained, changed, and trained on.

    .venv/bin/python examples/llama_memory.py

What fits is copied: the projections of queries, keys, values and outputs. The short convolution
begins as the identity, so that a memory first sees what attention saw; its decay and rate, and the
norm of its output, are new.
"""

import argparse
import json
import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import mnemic

LENGTH = 128


class MemoryAttention(nn.Module):
    """A memory layer that is called as Llama's attention is; for rows without padding or cache."""

    def __init__(self, attention: nn.Module, spec: str) -> None:
        super().__init__()
        dim, heads = attention.config.hidden_size, attention.config.num_attention_heads
        self.layer = mnemic.compile(spec).layer(dim, heads=heads)
        taken = [attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]
        with torch.no_grad():
            self.layer.vectors.project.weight.copy_(torch.cat(taken))
            self.layer.out.weight.copy_(attention.o_proj.weight)
            taps = self.layer.vectors.convolution.weight
            taps.copy_(torch.zeros_like(taps))
            taps[:, -1] = 1.0

    def forward(self, hidden_states: Tensor, **told) -> tuple[Tensor, None]:
        """Return the layer's output, and no attention weights."""
        if any(told.get(name) is not None for name in ("cache", "past_key_values")):
            raise ValueError("the memory has a state of its own: pass use_cache=False")
        return self.layer(hidden_states), None


def with_memory(model: LlamaForCausalLM, spec: str, keep: int) -> LlamaForCausalLM:
    """Put memory layers in the place of a model's attention, but for every ``keep``-th block."""
    for index, block in enumerate(model.model.layers):
        if (index + 1) % keep:
            block.self_attn = MemoryAttention(block.self_attn, spec)
    return model


def text() -> Tensor:
    """Return some of Python's standard library as bytes."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    whole = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py"))[:60])
    return torch.frombuffer(bytearray(whole), dtype=torch.uint8).long()


def train(model: LlamaForCausalLM, data: Tensor, steps: int, generator: torch.Generator) -> float:
    """Train on random windows; return the mean loss of the last steps, in bits a byte."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95))
    losses = []
    for _ in range(steps):
        loss = score(model, data, generator)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    last = losses[-max(1, steps // 5) :]
    return sum(last) / len(last) / 0.6931


def score(model: LlamaForCausalLM, data: Tensor, generator: torch.Generator) -> Tensor:
    """Return the loss on a batch of random windows."""
    first = torch.randint(len(data) - LENGTH, (8,), generator=generator)
    rows = torch.stack([data[i : i + LENGTH] for i in first.tolist()])
    return model(rows, labels=rows, use_cache=False).loss


def run(spec: str, steps: int, dim: int, blocks: int) -> dict[str, float]:
    """Train a Llama, put memories in, and train on; return the losses in bits a byte."""
    torch.manual_seed(0)
    generator, data = torch.Generator().manual_seed(0), text()
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=256, hidden_size=dim, intermediate_size=2 * dim, num_hidden_layers=blocks,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=LENGTH,
    ))  # fmt: skip
    found = {"attention": train(model, data, steps, generator)}
    with_memory(model, spec, keep=blocks)  # the last block keeps its attention
    with torch.no_grad():
        found["memory, as it was put in"] = score(model, data, generator).item() / 0.6931
    found["memory, trained on"] = train(model, data, steps // 2, generator)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", default="gated-deltanet")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=4)
    print(json.dumps(run(**vars(parser.parse_args())), indent=2))
