"""Which specs' generated code differs from the code that last passed the whole matrix of tests.

``passed.json`` holds a digest for each packaged spec, written by ``pytest --record`` after a run in
which every case of that spec has passed. The digest is taken of what runs: the generated module and
kernels, and the functions and classes of the support package that these name, directly or through
one another. Comments and docstrings do not count.
"""

import ast
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from hashlib import sha256
from pathlib import Path

from packaged import HERE, NAMES, PATHS

from mnemic import pipeline
from mnemic.errors import InvalidSpec

PASSED = HERE / "passed.json"

Definitions = Mapping[str, tuple[tuple[str, frozenset[str]], ...]]
"""Of a name, each definition's code and the names that it contains."""


def digests() -> dict[str, str]:
    """Compile every packaged spec, or take it from the cache, and return the digests by name."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = zip(NAMES, pool.map(_digest_of, NAMES), strict=True)
        return {name: digest for name, digest in found if digest}


def changed() -> dict[str, str]:
    """Return the digests of the specs whose generated code has not passed every case yet."""
    passed = _passed()
    return {name: found for name, found in digests().items() if passed.get(name) != found}


def record(found: Mapping[str, str]) -> None:
    """Write the digests with which every case of these specs has passed, beside those of others.

    They are those from before the run, so that what was edited meanwhile does not count.
    """
    known = {**_passed(), **found}
    kept = {name: known[name] for name in NAMES if name in known}
    PASSED.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")


def _passed() -> dict[str, str]:
    found: dict[str, str] = json.loads(PASSED.read_text(encoding="utf-8"))
    return found


def _digest_of(name: str) -> str:
    """Return the digest of a packaged spec; empty where this release does not compile it."""
    try:
        return digest(pipeline.compile(PATHS[name]).folder, name.replace("-", "_"))
    except InvalidSpec:
        return ""


def digest(folder: Path, module: str) -> str:
    """Return the digest of what runs in a compiled folder."""
    paths = [folder / f"{name}.py" for name in (module, "kernels", "step")]
    own = [_read(ast.parse(path.read_text(encoding="utf-8"))) for path in paths if path.exists()]
    support = sorted((folder / "support").rglob("*.py"))
    known = _definitions(tuple(path.read_text(encoding="utf-8") for path in support))
    names = frozenset[str]().union(*(named for _, named in own))
    code = [*(text for text, _ in own), *_reached(known, names)]
    return sha256("\n".join(code).encode()).hexdigest()[:12]


def _reached(known: Definitions, names: frozenset[str]) -> Iterator[str]:
    """Return the definitions that names lead to, in the order of their names."""
    found, ahead = set[str](), set(names)
    while ahead:
        name = ahead.pop()
        if name in known and name not in found:
            found.add(name)
            ahead |= {other for _, named in known[name] for other in named}
    return (code for name in sorted(found) for code, _ in known[name])


@cache
def _definitions(texts: tuple[str, ...]) -> Definitions:
    """Return what the modules of a support package define at their top level."""
    found: dict[str, list[tuple[str, frozenset[str]]]] = {}
    for text in texts:
        for node in ast.parse(text).body:
            for name in _defined(node):
                found.setdefault(name, []).append(_read(node))
    return {name: tuple(each) for name, each in found.items()}


def _defined(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [x.id for x in targets if isinstance(x, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def _read(tree: ast.AST) -> tuple[str, frozenset[str]]:
    """Return a tree's code without docstrings, and every name in it."""
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                names.add(name)
            case ast.Module() | ast.ClassDef() | ast.FunctionDef():
                node.body = [x for x in node.body if not _is_text(x)]
    return ast.dump(tree), frozenset(names)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
