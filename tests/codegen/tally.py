"""Drawn specs: mended until they have a meaning, and a count of those that were compared."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from mnemic.codegen.uncompilable import refused
from mnemic.compiler.derive import derive_spec
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec

Spec = dict[str, Any]


def mended(spec: Spec) -> Spec:
    """Return a spec without the entries that refusals name, taken out one by one.

    Each refusal must name an entry and say why. What is refused as a whole loses its keys, then its
    optimizer, its retention and its memory.
    """
    found = deepcopy(spec)
    while (place := _refused(found)) is not None:
        whole = (x for x in ("keys", "optimizer", "retention", "memory") if x in found)
        assert _without(found, place) or _without(found, (next(whole),)), (place, found)
    return found


def _refused(spec: Spec) -> tuple[str, ...] | None:
    """Return the place that a spec is refused at, or ``None``."""
    try:
        rule = derive_spec(load(spec))
        issues = refused(rule) if rule.structure.missing is None else ()
    except InvalidSpec as refusal:
        assert len(str(refusal)) > 20
        issues = refusal.issues
    if issues:
        where = issues[0].where.removeprefix(spec["name"]).strip()
        return tuple(where.split(".")[:2]) if where else ()
    missing = rule.structure.missing
    return None if missing is None else (missing.split(":")[0].strip(),)


def _without(spec: Spec, place: tuple[str, ...]) -> bool:
    """Take an entry out, or the one around it; return whether there was one."""
    match [x.strip() for x in place]:
        case [axis, entry] if isinstance(spec.get(axis), dict) and entry in spec[axis]:
            del spec[axis][entry]
            return True
        case [axis, *_] if axis in spec and axis != "name":
            del spec[axis]
            return True
    return False


@dataclass
class Tally:
    """How many drawn specs were compared, and what became of the others."""

    least: float = 0.6
    compared: int = 0
    others: list[str] = field(default_factory=list)

    def note(self, check: Callable[[Mapping[str, Any]], bool], spec: Mapping[str, Any]) -> None:
        """Run a check that tells whether it compared anything, and count."""
        try:
            compared = check(spec)
        except InvalidSpec as refusal:
            assert len(str(refusal)) > 20
            self.others.append(str(refusal))
            return
        self.compared += compared
        self.others += [] if compared else ["left its stability bound"]

    def enough(self) -> None:
        """Assert that most were compared."""
        total = self.compared + len(self.others)
        assert total
        assert self.compared >= self.least * total, self.others
