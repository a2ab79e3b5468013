"""The specs that come with the package, each read and derived once a session."""

from functools import cache
from pathlib import Path

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.rule import Rule
from mnemic.dsl.load import load

SPECS = Path(__file__).parents[1] / "specs"
PATHS = {path.stem: path for path in sorted(SPECS.rglob("*.yaml"))}
NAMES = tuple(sorted(PATHS))
"""Every spec that comes with the package."""


@cache
def rule_of(name: str) -> Rule:
    """The derived rule of a packaged spec."""
    return derive_spec(load(PATHS[name]))


@cache
def available() -> tuple[str, ...]:
    """Every packaged spec that this release compiles."""
    return tuple(n for n in NAMES if rule_of(n).structure.missing is None)
