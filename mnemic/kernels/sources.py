"""A short digest of everything that a compiled folder's kernels are made from.

A kernel is decided by its own text, by the functions on tiles that it calls, and by what launches
it (its cut, its precision). Docstrings, comments and the PyTorch forms decide nothing.
"""

import ast
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

KERNELS = ("kernels.py", "step.py")
"""The generated files that hold kernels."""
ASIDE = {
    "arguments", "convolution", "documents", "folder", "indices", "interpreted", "kept", "lengths",
    "norms", "operators", "ops", "pickled", "pool", "positions", "slices", "tiles", "verified",
}  # fmt: skip
"""PyTorch's functions, which no kernel calls, checks of what a call is given, what is kept in files
and pickles, what no device sees, and the tiles, of which only those called count."""
DIGITS = 12

Tree = ast.Module | ast.stmt


def digest(folder: Path) -> str:
    """Compute the digest of everything in a compiled folder that its kernels are made from."""
    support = folder / "support"
    trees = [_plain(folder / name) for name in KERNELS if (folder / name).is_file()]
    launching = _launching(support, trees)
    called = _called(_tiles(support / "tiles"), trees)
    text = "\n".join(map(_dumped, (*trees, *launching, *called)))
    return sha256(text.encode()).hexdigest()[:DIGITS]


def _plain(path: Path) -> ast.Module:
    """Parse a file's code without docstrings."""
    return _parsed(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.Module:
    """Parse code without docstrings: once for all folders, whose support is the same."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [x for x in node.body if not _text(x)]
    return tree


@lru_cache(maxsize=4096)
def _dumped(tree: Tree) -> str:
    return ast.dump(tree)


def _text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _launching(support: Path, trees: list[ast.Module]) -> list[ast.Module]:
    """Collect the modules of support that the kernels' files import, and theirs in turn."""
    found: dict[str, ast.Module] = {}
    ahead = [name for tree in trees for name in _imported(tree)]
    while ahead:
        name = ahead.pop()
        if name in found or name in ASIDE or not (support / f"{name}.py").is_file():
            continue
        found[name] = _plain(support / f"{name}.py")
        ahead += _imported(found[name])
    return [found[name] for name in sorted(found)]


@lru_cache(maxsize=1024)
def _imported(tree: ast.Module) -> tuple[str, ...]:
    """List the modules that relative imports name: of a package, or from it."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = (node.module or "").removeprefix("support").removeprefix(".")
            found += [module] if module else [alias.name for alias in node.names]
    return tuple(found)


def _tiles(folder: Path) -> dict[str, list[ast.stmt]]:
    """Collect what the modules of tiles define, by name: functions and constants."""
    found: dict[str, list[ast.stmt]] = {}
    for path in sorted(folder.glob("*.py")):
        for node in _plain(path).body:
            match node:
                case ast.FunctionDef(name=name):
                    found.setdefault(name, []).append(node)
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    found.setdefault(name, []).append(node)
    return found


def _called(tiles: dict[str, list[ast.stmt]], trees: list[ast.Module]) -> list[ast.stmt]:
    """Collect the definitions of tiles that a kernel names, and those that these name in turn."""
    found: dict[str, list[ast.stmt]] = {}
    ahead: list[Tree] = list(trees)
    while ahead:
        for name in _named(ahead.pop()):
            if name in tiles and name not in found:
                found[name] = tiles[name]
                ahead += tiles[name]
    return [node for name in sorted(found) for node in found[name]]


@lru_cache(maxsize=4096)
def _named(tree: Tree) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.append(name)
    return tuple(found)
