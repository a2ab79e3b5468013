"""Which packaged specs the first tier runs in full, since what they run has changed.

``passed.json`` holds digests of code with which every case has passed, written by
``pytest --record``: of each spec's generated modules, and of every function, class and table of
the support package that these reach, through imports and through one another. Comments and
docstrings do not count. A spec is run in full where

- its generated code has changed, or
- a piece of the support package that it reaches has, which at most ``SHARED`` of the specs reach.

What more of them reach is shared code: the specs of ``packaged.CORE`` run it in every case, and
they have every trait and every operation of the others.
"""

import ast
import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path

from packaged import HERE, NAMES, PATHS

from mnemic import pipeline
from mnemic.codegen.flat.modules import Name, modules
from mnemic.codegen.flat.reach import Folder
from mnemic.errors import InvalidSpec

PASSED = HERE / "passed.json"

SHARED = 0.25
"""The share of specs by which a piece of the support package is reached at most, if those that
reach it are to run in full when it has changed."""


@dataclass(frozen=True)
class Code:
    """What a spec runs: digests of its generated modules and of what they reach of support."""

    generated: str
    support: Mapping[str, str]


def codes() -> dict[str, Code]:
    """Compile every packaged spec, or take it from the cache, and return what each one runs."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = zip(NAMES, pool.map(_code_of, NAMES), strict=True)
        return {name: code for name, code in found if code is not None}


def changed(found: Mapping[str, Code]) -> list[str]:
    """Return the specs that are to be run in full."""
    generated, support = _passed()
    pieces = {n: {p for p, x in c.support.items() if support.get(p) != x} for n, c in found.items()}
    reaching = Counter(piece for each in pieces.values() for piece in each)
    few = {piece for piece, count in reaching.items() if count <= SHARED * len(NAMES)}
    return [n for n, c in found.items() if generated.get(n) != c.generated or pieces[n] & few]


def record(found: Mapping[str, Code], ran: Collection[str], failed: Collection[str]) -> None:
    """Write the digests with which every case has passed, beside those that were not tried.

    Of the support package these are the pieces that a spec which passed reaches, and none that
    failed. The digests are those from before the run, so that later edits do not count.
    """
    generated, support = _passed()
    doubtful = {piece for name in failed if name in found for piece in found[name].support}
    for name in sorted(set(ran) - set(failed)):
        if name in found:
            generated[name] = found[name].generated
            support |= {p: x for p, x in found[name].support.items() if p not in doubtful}
    present = {piece for code in found.values() for piece in code.support}
    told = {
        "generated": {n: x for n, x in sorted(generated.items()) if n in NAMES},
        "support": {p: x for p, x in sorted(support.items()) if p in present},
    }
    PASSED.write_text(json.dumps(told, indent=0) + "\n", encoding="utf-8")


def _passed() -> tuple[dict[str, str], dict[str, str]]:
    told = json.loads(PASSED.read_text(encoding="utf-8"))
    return told["generated"], told["support"]


def _code_of(name: str) -> Code | None:
    """Return what a packaged spec runs; None where this release does not compile it."""
    try:
        return code(pipeline.compile(PATHS[name]).folder, name.replace("-", "_"))
    except InvalidSpec:
        return None


def code(folder: Path, module: str) -> Code:
    """Return what runs in a compiled folder."""
    support = sorted((folder / "support").rglob("*.py"))
    texts = {p.relative_to(folder).as_posix(): p.read_text(encoding="utf-8") for p in support}
    paths = [folder / f"{name}.py" for name in (module, "kernels", "step")]
    own = modules({p.name: p.read_text(encoding="utf-8") for p in paths if p.exists()})
    whole = _support(tuple(texts.items())).with_modules(own)
    reached = whole.reached(map(Name, own))
    pieces = {
        piece: _digest(text)
        for name, statements in reached.items() if name not in own
        for piece, text in _pieces(name, [s.node for s in statements])
    }  # fmt: skip
    return Code(_digest("".join(_written(own[name].tree) for name in sorted(own))), pieces)


@lru_cache(maxsize=1)
def _support(texts: tuple[tuple[str, str], ...]) -> Folder:
    """Return a support package, read once for all specs of a process, as is what it names."""
    folder = Folder(modules(dict(texts)))
    for module in folder.modules.values():
        for statement in module.statements:
            folder.uses(module, statement)
    return folder


def _pieces(module: str, nodes: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Return each definition of a module by its name; all other statements are one piece."""
    rest = []
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield f"{module}.{name}", _written(node)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{module}.{name}", _written(node)
            case _:
                rest.append(_written(node))
    if rest:
        yield module, "".join(rest)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


@cache
def _written(tree: ast.AST) -> str:
    """Return a tree's code without docstrings, which the tree loses.

    Trees of the support package, which all specs share, are written once.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [x for x in node.body if not _is_text(x)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
