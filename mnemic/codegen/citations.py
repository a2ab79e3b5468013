"""Which equations of the derivation the parts of a plan compute, by their numbers there."""

from collections.abc import Iterable

from mnemic.compiler.explain.render import Equation

CITED = {
    "prediction": ("prediction",),
    "error": ("error",),
    "layers": ("layers", "prediction"),
    "chain rule": ("chain rule", "error"),
    "gradient": ("gradient",),
    "momentum": ("momentum", "steps"),
    "keys": ("keys",),
    "weights": ("weights",),
    "dual": ("dual", "memory"),
    "step": ("use", "dual", "memory"),
    "norms": ("norms",),
    "means": ("means",),
    "link": ("link", "memory"),
    "levels": ("levels", "memory"),
    "slots": ("slots",),
    "normaliser": ("normaliser",),
    "readout": ("read-out",),
    "kernel": ("kernel",),
}
"""The parts of a plan by name, and the equations that they compute: the first that the rule has."""


def numbers_of(listed: tuple[Equation, ...]) -> dict[str, str]:
    """Return the numbers of the equations that a plan's parts compute, as comments show them."""
    own = {e.name: (e.name,) for e in listed if e.name not in CITED}  # running averages, say
    found = {part: _first(listed, names) for part, names in {**own, **CITED}.items()}
    pairs = [e for e in listed if e.name == "moments"]
    if len(pairs) == 2:  # of keys with keys, and of values with keys
        found |= {f"moment {name}": _shown([e]) for name, e in zip("HU", pairs, strict=True)}
    rows = [e for e in listed if e.name == "rows"]
    if len(rows) == 2:  # the memory as rows over keys, and the rows: the error is in those
        found["error"] = _shown(rows[1:])
    found["fit"] = _shown(e for e in listed if e.name in ("memory", "read-out"))
    return found


def of_slots(numbers: dict[str, str]) -> dict[str, str]:
    """Cite the one equation of the slots for the gradient, dual and error of their keys' memory."""
    write = dict.fromkeys(("gradient", "dual", "error"), numbers.get("slots", ""))
    return {**numbers, **write}


def _first(listed: tuple[Equation, ...], names: tuple[str, ...]) -> str:
    """Show the numbers of the first name that the rule has, several where matrices move apart."""
    known = {e.name for e in listed}
    name = next((name for name in names if name in known), None)
    return _shown(e for e in listed if e.name == name)


def _shown(equations: Iterable[Equation]) -> str:
    found = [str(e.number) for e in equations]
    return f"({', '.join(found)})" if found else ""
