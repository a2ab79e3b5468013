"""What `mnemic list`, `check` and `derive` tell of a rule, kept on disk by spec and generator."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mnemic import pipeline
from mnemic.codegen import cache
from mnemic.codegen.generator import generator
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import located
from mnemic.dsl.spec import Spec
from mnemic.errors import Issue, MnemicError, format_issue
from mnemic.models.files import replacing

if TYPE_CHECKING:
    from mnemic.compiler.rule import Rule

PACKAGED: Final = Path(__file__).with_name("packaged.json")
"""The facts of the packaged specs, so that the first `mnemic list` derives nothing.

A row has its spec's hash: where a spec was edited, its row is passed over. A test derives every row
again, and ``pytest tests/cli/test_packaged_facts.py --regenerate`` writes the file anew.
"""

HEAD = {"d_k": 64, "d_v": 64, "T": 2048}
"""The sizes at which costs are told: one head of 64 channels, 2048 tokens."""

Facts = dict[str, Any]

EACH, MOST = 12, 16
"""Specs that are worth a process of their own, which takes a second to begin; processes at most."""


def gathered(specs: Mapping[str, Spec], told: Callable[[str], None]) -> dict[str, Facts]:
    """Return the facts of each spec.

    They are read from the package or from the cache; those of other specs are derived and kept,
    and ``told`` hears each one's name.
    """
    packaged = {row["hash"]: row["facts"] for row in read_known(PACKAGED).values()}
    hashes = {name: spec_hash(spec) for name, spec in specs.items()}
    known = {name: packaged[key] for name, key in hashes.items() if key in packaged}
    others = {name: spec for name, spec in specs.items() if name not in known}
    return known | (read_or_make("facts", others, told, facts) if others else {})


def packaged_facts(rules: Mapping[str, "Rule"]) -> str:
    """Return the text of ``packaged.json``, a line a spec, from the rules of the packaged specs."""
    rows = {
        name: {"hash": spec_hash(rule.problem.spec), "facts": facts_of(rule)}
        for name, rule in rules.items()
    }
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def kernels(spec: Spec) -> list[Facts]:
    """Return the forms of a spec's rule, and which have fused kernels; planned once, then read."""
    (found,) = read_or_make("kernels", {spec.name: spec}, lambda name: None, _kernels).values()
    return list(found["kernels"])


def pace(spec: Spec) -> str | None:
    """Return the line on a memory that runs token by token, or None; derived once, then read."""
    (found,) = read_or_make("paces", {spec.name: spec}, lambda name: None, _pace).values()
    return None if found["pace"] is None else str(found["pace"])


def read_or_make(
    file: str, specs: Mapping[str, Spec], told: Callable[[str], None], made: Callable[[Spec], Facts]
) -> dict[str, Facts]:  # fmt: skip
    """Return what a file of the cache knows of each spec, made and added where it is not there."""
    place = cache.root() / generator() / f"{file}.json"
    known, keys = read_known(place), {name: spec_hash(spec) for name, spec in specs.items()}
    lacking = {name: spec for name, spec in specs.items() if keys[name] not in known}
    if lacking:
        new = {keys[name]: found for name, found in _made(lacking, told, made)}
        known = {**read_known(place), **known, **new}
        write_known(place, known)
    return {name: known[key] for name, key in keys.items()}


def _made(
    specs: Mapping[str, Spec], told: Callable[[str], None], made: Callable[[Spec], Facts]
) -> Iterator[tuple[str, Facts]]:
    """Yield each spec's name and what is made of it; of many, by as many processes as cores."""
    several = min(_cores(), len(specs) // EACH, MOST)
    if several < 2:
        for name, spec in specs.items():
            told(name)
            yield name, made(spec)
        return
    with ProcessPoolExecutor(several, get_context("spawn")) as pool:
        for name, found in zip(specs, pool.map(made, specs.values()), strict=True):
            told(name)
            yield name, found


def _cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def warned(spec: Spec) -> tuple[str, ...]:
    """Return what a user should hear of a spec before training; derived once, then from disk.

    Raises ``InvalidSpec`` for a spec that has no derivation.
    """
    (found,) = read_or_make("warnings", {spec.name: spec}, lambda name: None, _warnings).values()
    return tuple(found["warnings"])


def find_ahead(specs: Iterable[Spec], told: Callable[[str], None]) -> None:
    """Find what `warned` and `refused` tell of many specs, by several processes.

    Of few nothing is found ahead, and of a spec that has no derivation nothing is kept.
    """
    place = cache.root() / generator() / "warnings.json"
    known = read_known(place)
    lacking = {key: x for key, x in ((spec_hash(x), x) for x in specs) if key not in known}
    if len(lacking) < 2 * EACH:
        return
    tell = {key: spec.name for key, spec in lacking.items()}
    made = _made(lacking, lambda key: told(tell[key]), _warnings_if_any)
    new = {key: found for key, found in made if found}
    write_known(place, {**read_known(place), **new})


def _warnings_if_any(spec: Spec) -> Facts:
    try:
        return _warnings(spec)
    except MnemicError:
        return {}


def uncompiled(spec: Spec, source: pipeline.Source) -> list[str]:
    """Return why a spec is not compiled, each reason with its place; empty where it is."""
    found = refused(spec)
    if found and not isinstance(source, Spec):
        found = tuple(located(found, spec.name, source).issues)
    return [format_issue(issue) for issue in found]


def refused(spec: Spec) -> tuple[Issue, ...]:
    """Return what of a spec that has a rule is not compiled; found once, then read from disk."""
    (found,) = read_or_make("warnings", {spec.name: spec}, lambda name: None, _warnings).values()
    return tuple(Issue(**issue) for issue in found["refused"])


def facts(spec: Spec) -> Facts:
    """Derive a spec; return its rule's class, forms and costs."""
    return facts_of(pipeline.derive(spec))


def facts_of(rule: "Rule") -> Facts:
    """Return a rule's class, forms and costs."""
    from mnemic.compiler.explain.cost_hybrids import layer_cost
    from mnemic.compiler.explain.explanation import missing_of

    known = layer_cost(rule)
    structure = rule.structure
    return {
        "class": structure.kind,
        "forms": list(structure.forms),
        "missing": missing_of(rule),
        "state": str(known.state),
        "costs": known.evaluate(**HEAD),
    }


def _warnings(spec: Spec) -> Facts:
    from mnemic.codegen.uncompilable import refused as refused_of
    from mnemic.compiler.explain.explanation import warned as warnings_of

    rule = pipeline.derive(spec)
    found = [asdict(issue) for issue in refused_of(rule)]
    return {"warnings": list(warnings_of(rule)), "refused": found}


def _kernels(spec: Spec) -> Facts:
    from mnemic.codegen.available import fused

    if refused(spec):
        return {"kernels": []}
    found = fused(pipeline.derive(spec))
    return {"kernels": [
        {"form": f.form, "kernel": f.missing is None, "gradient": f.no_gradient is None,
         "why": f.missing or f.no_gradient, "text": f.text}
        for f in found
    ]}  # fmt: skip


def _pace(spec: Spec) -> Facts:
    from mnemic.compiler.explain.layered_words import pace as told

    return {"pace": told(pipeline.derive(spec))}


def read_known(place: Path) -> dict[str, Facts]:
    """Return what a file of the cache holds, nothing where it is not there or cannot be read."""
    try:
        now = place.stat()
        return dict(_parsed(place, now.st_ino, now.st_mtime_ns, now.st_size))
    except (OSError, ValueError):
        return {}


@lru_cache(maxsize=4)
def _parsed(place: Path, *version: int) -> dict[str, Facts]:
    """Load a file of the cache as it is at a version, once for all specs of a command."""
    found = json.loads(place.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def write_known(place: Path, known: dict[str, Facts]) -> None:
    """Write a file of the cache; where that fails, its facts are found again next time."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as beside:
            beside.write_text(json.dumps(known), encoding="utf-8")
