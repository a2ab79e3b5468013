"""The rules of the support functions, by name."""

from collections.abc import Callable

from mnemic.codegen.adjoint import chunks, rows, systems
from mnemic.codegen.adjoint.at import At

RULES: dict[str, Callable[[At], None]] = {**rows.RULES, **chunks.RULES, **systems.RULES}
