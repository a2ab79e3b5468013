"""The packaged specs: their names, and what tests that are parametrised by them need to know.

To derive and compile every spec takes tens of seconds, so no test module does it while tests are
collected. What parametrisations choose by stands in ``packaged.json``, which
``test_packaged.py`` compares with what is derived and ``--regenerate`` writes anew.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from mnemic import pipeline
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import Layers, Rule
from mnemic.dsl.load import load

HERE = Path(__file__).parent
SPECS = HERE.parent / "specs"
PATHS = {path.stem: path for path in sorted(SPECS.rglob("*.yaml"))}
NAMES = tuple(sorted(PATHS))
"""Every spec that comes with the package."""

TABLE = HERE / "packaged.json"
FACTS: Mapping[str, Mapping[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
"""What is known of each spec without compiling it (see ``facts``)."""

CORE = (
    "atlas-mag", "batch-gd", "cms", "deltaformer-round", "deltanet-momentum", "deltaproduct",
    "dot", "efla", "elastic-net", "f-divergence", "gated-deltanet", "gateloop",
    "gaussian-attention", "gla", "gsa", "hgrn", "huber-mixture", "kernel-regression",
    "lion", "local-linear-attention", "log-linear-gated-deltanet", "longhorn", "lq-stability",
    "lru", "mesa", "mlstm", "moneta", "path-fox", "q-omega", "rls", "softmax-attention", "swa",
    "titans", "titans-mac", "titans-mal",
)  # fmt: skip
"""The specs of the first test tier: every trait and every operation of the others is in one of
these (``test_packaged.py`` holds them to it)."""


@cache
def rule_of(name: str) -> Rule:
    """Return the derived rule of a packaged spec, made once a process."""
    return derive_spec(load(PATHS[name]))


def _known(name: str) -> Mapping[str, Any]:
    if name not in FACTS:
        raise LookupError(f"no row for {name}: run pytest tests/test_packaged.py --regenerate")
    return FACTS[name]


@cache
def available() -> tuple[str, ...]:
    """Return every packaged spec that this release compiles."""
    return tuple(n for n in NAMES if _known(n)["forms"])


@cache
def chunked() -> tuple[str, ...]:
    """Return those that have a chunk form."""
    return tuple(n for n in available() if "chunk" in FACTS[n]["forms"])


def every_form() -> tuple[tuple[str, str], ...]:
    """Return each spec with each of its forms."""
    return tuple((n, form) for n in available() for form in FACTS[n]["forms"])


def having(trait: str) -> tuple[str, ...]:
    """Return the specs that compile and have a trait."""
    return tuple(n for n in available() if trait in FACTS[n]["traits"])


def taking(*coefficients: str) -> tuple[str, ...]:
    """Return the specs whose operator takes one of these coefficients."""
    return tuple(n for n in available() if {*coefficients} & {*FACTS[n]["coefficients"]})


def facts(name: str) -> dict[str, Any]:
    """Derive and compile a spec, and return its row of the table."""
    rule = rule_of(name)
    if rule.structure.missing is not None:
        return {"forms": [], "coefficients": [], "traits": []}
    from mnemic.codegen.available import fused

    signature = pipeline.compile(rule.problem.spec).operator.signature
    kernels = {kernel.text for kernel in fused(rule)}
    return {
        "forms": list(signature.forms),
        "coefficients": [c.name for c in signature.coefficients],
        "traits": sorted(_traits(rule, signature) | (kernels & {"chunk, with gradient"})),
    }


def operations(name: str) -> set[str]:
    """Return the operations that the PyTorch forms of a spec call."""
    return set(re.findall(r"\bops\.(\w+)\(", pipeline.compile(PATHS[name]).source))


def _traits(rule: Rule, signature: Any) -> set[str]:
    """Return what tells kinds of rules apart, in words."""
    spec, s = rule.problem.spec, signature
    flags = {
        "micro steps": s.steps > 1, "steps on a token": s.inner > 1, "window": s.window > 1,
        "anchor": s.anchor > 1, "diagonal": s.diagonal, "phase": s.phase, "slots": s.slots,
        "complex": s.complex, "levels": s.levels, "span": s.span, "own keys": s.keys,
        "layered": isinstance(rule, Layers), "parameters": s.params,
        "normed": rule.network.normed,
        "normed updates": rule.applied.normalize != "none", "own decay": _own_decay(rule),
    }  # fmt: skip
    found = {name for name, present in flags.items() if present}
    kind = rule.structure
    found |= {
        f"rule {type(rule).__name__}",
        f"class {kind.kind}",
        f"algebra {kind.algebra}",
        f"link {rule.retained.mode}",
    }
    return found | {f"method {spec.optimizer.method}", f"hybrid {spec.block.hybrid}"}


def _own_decay(rule: Rule) -> bool:
    """Whether a spec has a decay whose coefficient nothing else names."""
    decays = {"alpha", "beta"}
    others = [s.expr for s in rule.scalars if s.name not in decays] + [*rule.problem.keys.values()]
    named = {str(symbol) for expr in others for symbol in expr.free_symbols}
    return rule.problem.spec.retention.decay.origin is not None and not named & decays
