"""Layers of packaged specs under torch.compile with inductor, against the same layers without.

    python tests/inductor.py                 # one spec of each class of rule
    python tests/inductor.py --all           # every packaged spec: hours on one core
    python tests/inductor.py titans yaad --tokens 40
    python tests/inductor.py --all --keep benchmarks/results/inductor.json

Prints for each the largest error of the output and of the gradients, each relative to the largest
entry of what it is compared with, and the seconds; what is apart ends the program with 1. Where the
two differ, the one under torch.compile may be the better one (a gradient that is a sum which nearly
cancels): what counts is the smaller of their difference and of how much further from the layer in
float64 it is than the layer without. A file of
results is written spec by spec, and a spec that stands there as it is now is not run again.
"""

import argparse
import copy
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mnemic import pipeline
from mnemic.bench.store import Store, versions
from mnemic.compiler.rule import Layers
from mnemic.dsl.hashing import spec_hash

sys.path.insert(0, str(Path(__file__).parent))

ALLOWED = 2e-4
"""Relative errors of float32 that may come of another order of sums."""


def layer_of(spec: pipeline.Source, dim: int = 8) -> Any:
    """A small layer of a spec."""
    torch.manual_seed(0)
    compiled = pipeline.compile(spec)
    try:
        return compiled.layer(dim, heads=1)
    except ValueError:  # heads that come in groups
        return compiled.layer(dim, heads=2)


def gradients(layer: Any, call: Any, x: Tensor) -> dict[str, Tensor]:
    """The output, and the gradient of Σ sin(output) at x and at every parameter."""
    x = x.clone().requires_grad_()
    y = call(x)
    named = {"x": x, **dict(layer.named_parameters())}
    found = torch.autograd.grad(y.sin().sum(), list(named.values()), allow_unused=True)
    grads = {n: g for n, g in zip(named, found, strict=True) if g is not None}
    return {"y": y.detach(), **grads}


def errors(name: str, tokens: int, **options: Any) -> dict[str, float]:
    """How far results under torch.compile are from those without, or further from the exact."""
    layer = layer_of(name)
    x = torch.randn(1, tokens, layer.dim)
    wanted = gradients(layer, layer, x)
    torch._dynamo.reset()
    found = gradients(layer, torch.compile(layer, dynamic=False, **options), x)
    double = copy.deepcopy(layer).double()
    exact = gradients(double, double, x.double())
    assert found.keys() == wanted.keys() == exact.keys()
    further = {n: apart(found[n], x) - apart(wanted[n], x) for n, x in exact.items()}
    return {n: min(apart(found[n], x), max(further[n], 0.0)) for n, x in wanted.items()}


def apart(found: Tensor, wanted: Tensor) -> float:
    """The largest error, relative to the largest entry."""
    return float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6))


def main() -> int:
    """Check them, and say what is apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--all", action="store_true", help="every packaged spec")
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--keep", type=Path, help="a JSON file of results")
    asked = parser.parse_args()
    setting = {**versions(), "sizes": f"B=1 T={asked.tokens} dim=8, float32"}
    store = Store(asked.keep, "tests/inductor.py", setting)
    wrong = []
    for name in asked.names or _names(everything=asked.all):
        key = spec_hash(pipeline.read(name))
        if store.known(name, key) is None:
            store.keep(name, key, measured(name, asked.tokens))
        row = store.results[name]
        wrong += [] if row["right"] else [name]
        print(told(name, row), flush=True)
    return 1 if wrong else 0


def measured(name: str, tokens: int) -> dict[str, Any]:
    """Return the errors of the output and of the worst gradient, and how long they took."""
    begun = time.perf_counter()
    found = errors(name, tokens)
    output = found.pop("y")
    worst = max(found, key=lambda n: found[n])
    return {
        "right": output <= ALLOWED and found[worst] <= ALLOWED,
        "output": output,
        "gradients": found[worst],
        "worst gradient": worst,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def told(name: str, row: Mapping[str, Any]) -> str:
    """Return the line of a spec."""
    took = f"{row['seconds']:6.1f} s"
    output, gradients = (row[n] if row[n] is not None else float("nan")
                         for n in ("output", "gradients"))  # fmt: skip
    apart = f"output {output:.1e}  gradients {gradients:.1e}"
    said = "right" if row["right"] else "WRONG"
    return f"{said}  {name:28} {took}  {apart} at {row['worst gradient']}"


def _names(*, everything: bool) -> list[str]:
    """Every spec that compiles, or the first by name of each class and kind of memory."""
    from packaged import available, rule_of

    if everything:
        return list(available())
    found: dict[object, str] = {}
    for name in available():
        rule = rule_of(name)
        found.setdefault(
            (rule.structure.kind, rule.structure.algebra, isinstance(rule, Layers)), name
        )
    return list(found.values())


if __name__ == "__main__":
    raise SystemExit(main())
