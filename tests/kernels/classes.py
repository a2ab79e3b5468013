"""One spec of each structural class, for tests that cannot afford them all."""

from functools import cache

from mnemic import pipeline
from mnemic.dsl.catalogue import names


@cache
def representatives() -> tuple[str, ...]:
    """The first spec, by name, of each class that has the fused form."""
    found: dict[str, str] = {}
    for name in names():
        structure = pipeline.derive(name).structure
        if structure.missing is None and structure.kind not in found and _fused(name):
            found[structure.kind] = name
    return tuple(found.values())


def _fused(name: str) -> bool:
    forms: tuple[str, ...] = pipeline.compile(name).operator.forms
    return "triton" in forms
