"""The rules of the support functions, by name."""

from collections.abc import Callable

from mnemic.codegen.adjoint import (
    chunks,
    kept,
    matrices,
    moments,
    roots,
    rows,
    scores,
    solutions,
    stable,
    systems,
    whole,
    windows,
)
from mnemic.codegen.adjoint.at import At

MODULES = (
    rows,
    chunks,
    scores,
    stable,
    systems,
    matrices,
    roots,
    windows,
    moments,
    kept,
    solutions,
    whole,
)

RULES: dict[str, Callable[[At], None]] = {
    name: rule for module in MODULES for name, rule in module.RULES.items()
}
