"""Names in the compiler: a module's tells it from all others, a function's says what it does."""

import ast
import re
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "mnemic"
SUPPORT = PACKAGE / "codegen" / "support"
VAGUE = re.compile(r"(.*_)?(told|kept|asked|apart|found|parted)")
"""Participles that say neither what a function returns nor what it does."""


def modules(*folders: str) -> list[Path]:
    """Return the modules of folders, without those that are copied into compiled folders."""
    paths = [path for folder in folders for path in sorted((PACKAGE / folder).rglob("*.py"))]
    return [path for path in paths if SUPPORT not in path.parents]


def test_no_two_modules_of_the_compiler_have_one_name() -> None:
    paths = modules("compiler", "codegen")
    assert len(paths) > 200
    count = Counter(path.name for path in paths if path.name != "__init__.py")
    assert [name for name, times in count.items() if times > 1] == []


def test_no_function_is_named_by_a_bare_participle() -> None:
    named = [
        (str(path.relative_to(PACKAGE)), node.name)
        for path in modules(".")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    assert len(named) > 3000
    assert [(path, name) for path, name in named if VAGUE.fullmatch(name.lstrip("_"))] == []
