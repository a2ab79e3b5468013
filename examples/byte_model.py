"""From a spec to a model that writes Python: derived, compiled, trained on bytes, sampled from.

    .venv/bin/python examples/byte_model.py --steps 2000 --out runs/byte-model

The spec is new: a smooth robust loss, a forget gate, one step a token. Everything below it is
generated. The text is Python's standard library; a run that was stopped goes on where it was.
"""

import argparse
import json
import sysconfig
from pathlib import Path
from typing import Any

import torch
import yaml

import mnemic
from mnemic.compiler.explain.equations import equations
from mnemic.hf import folder
from mnemic.hf.build import make_config, make_model
from mnemic.hf.shape import Shape
from mnemic.hf.text_options import TextOptions
from mnemic.hf.texts import Texts
from mnemic.hf.tokenizer import get_tokenizer
from mnemic.hf.train import MODEL, train
from mnemic.models.progress import Silent

SPEC = """
mnemic: 1
name: log-cosh
title: Log-cosh memory with a forget gate
bias: {expr: "log(cosh(e))"}              # quadratic near zero, linear far away
retention: {decay: token, order: before}  # forget first, by a gate from the input
optimizer: {rate: token}                  # one gradient step a token
"""

HELD_OUT = 4096
"""Characters of a module that is held out."""


class Told(Silent):
    """Prints every evaluation."""

    def evaluated(self, point: Any) -> None:
        print(
            f"step {point.step}: {point.score:.3f} bits a byte, {point.seconds:.0f} s", flush=True
        )


def library(files: int) -> Texts:
    """Return modules of Python's standard library; the beginning of every tenth is held out."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    found = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))[:files]]
    return Texts(
        tuple(text for i, text in enumerate(found) if i % 10),
        tuple(text[:HELD_OUT] for i, text in enumerate(found) if not i % 10),
    )


def written(place: Path, prompt: str, length: int) -> str:
    """Return what a saved model writes after a prompt."""
    model, tokenizer = folder.load(place).eval(), get_tokenizer("bytes", ())
    torch.manual_seed(0)
    told = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    grown = model.generate(
        told["input_ids"], max_new_tokens=length, do_sample=True, temperature=0.5, top_k=20,
        pad_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    return str(tokenizer.decode(grown[0]))


def run(
    steps: int, dim: int, blocks: int, length: int, batch: int, files: int, out: Path
) -> dict[str, Any]:
    """Derive, train and write; return the bits a byte of held-out text, and what was written."""
    spec = yaml.safe_load(SPEC)
    rule = mnemic.derive(spec)
    lines = [f"({line.number}) {line.text}" for line in equations(rule)]
    print("\n".join(lines))
    tokenizer = get_tokenizer("bytes", ())
    config = make_config([spec], Shape(blocks, dim, vocabulary=len(tokenizer), length=length))
    every = max(1, steps // 5)
    options = TextOptions(
        steps=steps, batch=batch, length=length, lr=3e-3, warmup=min(50, steps // 10),
        eval_every=every, threads=torch.get_num_threads(),
    )  # fmt: skip
    outcome = train(
        make_model(config), tokenizer, library(files), options, out, Told(), existing="resume"
    )
    text = written(out / MODEL, "def ", 3 * length)
    return {"rule": lines, "bits": outcome.bits, "parameters": outcome.parameters, "text": text}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--dim", type=int, default=192)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--files", type=int, default=150, help="modules of the library")
    parser.add_argument("--out", type=Path, default=Path("runs/byte-model"))
    found = run(**vars(parser.parse_args()))
    print(json.dumps({name: found[name] for name in ("bits", "parameters")}))
    print(found["text"])
