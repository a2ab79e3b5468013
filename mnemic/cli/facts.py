"""What `mnemic list`, `check` and `derive` tell of a rule, kept on disk by spec and generator."""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mnemic import pipeline
from mnemic.codegen import cache
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.spec import Spec
from mnemic.errors import InvalidSpec

HEAD = {"d_k": 64, "d_v": 64, "T": 2048}
"""The sizes at which costs are told: one head of 64 channels, 2048 tokens."""

Facts = dict[str, Any]


def gathered(specs: Mapping[str, Spec], told: Callable[[str], None]) -> dict[str, Facts]:
    """The facts of each spec; what is not on disk is derived, and ``told`` before it is."""
    return _kept("facts", specs, told, facts)


def kernels(spec: Spec) -> list[Facts]:
    """The forms of a spec's rule, and which have fused kernels; planned once, then from disk."""
    (found,) = _kept("kernels", {spec.name: spec}, lambda name: None, _kernels).values()
    return list(found["kernels"])


def pace(spec: Spec) -> str | None:
    """The line on a memory that runs token by token; derived once, then read from disk."""
    (found,) = _kept("paces", {spec.name: spec}, lambda name: None, _pace).values()
    return None if found["pace"] is None else str(found["pace"])


def _kept(
    file: str, specs: Mapping[str, Spec], told: Callable[[str], None], made: Callable[[Spec], Facts]
) -> dict[str, Facts]:  # fmt: skip
    """What a file knows of each spec, made and added where it is not there."""
    place = _place(file)
    known = _read(place)
    found = {}
    for name, spec in specs.items():
        key = spec_hash(spec)
        if key not in known:
            told(name)
            known[key] = made(spec)
        found[name] = known[key]
    if known != _read(place):
        _write(place, known)
    return found


def warned(spec: Spec) -> tuple[str, ...]:
    """What a user should hear of a spec before training; derived once, then read from disk."""
    try:
        (found,) = gathered({spec.name: spec}, lambda name: None).values()
    except InvalidSpec as refusal:
        return tuple(f"No rule is derived: {issue.message}." for issue in refusal.issues)
    return tuple(found["warnings"])


def facts(spec: Spec) -> Facts:
    """Class, forms, costs and warnings of a spec's rule."""
    from mnemic.compiler.explain.cost_hybrids import layer_cost
    from mnemic.compiler.explain.explanation import warned as warnings_of

    rule = pipeline.derive(spec)
    known = layer_cost(rule)
    structure = rule.structure
    return {
        "class": structure.kind,
        "forms": list(structure.forms),
        "missing": structure.missing,
        "state": str(known.state),
        "costs": known.evaluate(**HEAD),
        "warnings": list(warnings_of(rule)),
    }


def _kernels(spec: Spec) -> Facts:
    from mnemic.codegen.available import fused

    found = fused(pipeline.derive(spec))
    return {"kernels": [
        {"form": f.form, "kernel": f.missing is None, "gradient": f.no_gradient is None,
         "why": f.missing or f.no_gradient, "text": f.text}
        for f in found
    ]}  # fmt: skip


def _pace(spec: Spec) -> Facts:
    from mnemic.compiler.explain.layered_words import pace as told

    return {"pace": told(pipeline.derive(spec))}


def _place(file: str) -> Path:
    return cache.root() / cache.generator() / f"{file}.json"


def _read(place: Path) -> dict[str, Facts]:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(place: Path, known: dict[str, Facts]) -> None:
    """Keep the facts; where the cache cannot be written they are derived again next time."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=place.parent, prefix=".facts.", delete=False, encoding="utf-8"
        ) as beside:
            json.dump(known, beside)
        Path(beside.name).replace(place)
    except OSError:
        return
