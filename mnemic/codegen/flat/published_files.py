"""Files of a compiled folder → the files that are published."""

import ast
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from mnemic.codegen.flat.fold import folded
from mnemic.codegen.flat.groups import FACADES, File, Part, grouped
from mnemic.codegen.flat.modules import Name, modules
from mnemic.codegen.flat.pack import packed
from mnemic.codegen.flat.reach import Folder
from mnemic.codegen.flat.write import text_of

FOLDER = '''"""The folder that this file is in: where it lies, and the name it was imported by."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent

PACKAGE = __name__.rpartition(".")[0]
'''

STARTED = re.compile(r'\{PACKAGE\}\.support\.(\w+)"\)\.(\w+)')
"""What scripts in the folder call of its support, once they have imported it by its path."""

TAKEN = {"step": "step_launch", "kernels": "kernel_features", "operator": "rule_operator"}
"""Other names of support: generated files have theirs, or Python's library, which a file that lies
beside a script hides."""


def published(files: Mapping[str, str], *, tools: bool = True) -> dict[str, str]:
    """Return the files of a compiled folder without what its generated code does not reach.

    ``tools`` are its commands ``verify`` and ``tune`` and its own test, with what they reach.
    All lie side by side and import each other by ``from .name import …``, as Hugging Face's
    transformers copies them. Text that is no code stays as it is.
    """
    files = {p: t for p, t in files.items() if tools or "/" in p or not STARTED.search(t)}
    texts = {**files, "support/folder.py": FOLDER}
    scripts = {
        p: t for p, t in texts.items() if "/" not in p and (STARTED.search(t) or p == "__init__.py")
    }
    code = {p: t for p, t in texts.items() if p.endswith(".py") and p not in scripts}
    support = _support(frozenset((p, t) for p, t in code.items() if p.startswith("support/")))
    own = modules({p: packed(t) for p, t in code.items() if not p.startswith("support/")})
    folder = support.with_modules(own)
    called = [found for t in scripts.values() for found in STARTED.findall(t)]
    roots = [*map(Name, own), *(Name(f"support.{module}", name) for module, name in called)]
    folder = folded(folder, roots, set(own), _api(folder, own))
    reached = folder.reached(roots)
    parts = {name: Part.of(folder, name, kept) for name, kept in reached.items() if kept}
    made = grouped(_files(parts, set(own)))
    place = {module: name for name, file in made.items() for module in file.modules}
    flat = {f"{name}.py": text_of(file, place) for name, file in made.items()}
    flat |= {p: t.replace("{PACKAGE}.support.", "{PACKAGE}.") for p, t in scripts.items()}
    return flat | {p: t for p, t in files.items() if not p.endswith(".py")}


@lru_cache(maxsize=1)
def _support(files: frozenset[tuple[str, str]]) -> Folder:
    """Read the support package, once for all specs."""
    return Folder(modules(dict(files)))


def _api(folder: Folder, own: Iterable[str]) -> list[Name]:
    """List the classes whose methods the folder's users call: layer, rule, signature."""
    found = []
    for module in (folder.modules[name] for name in own):
        made = {}
        for node in module.tree.body:
            match node:
                case ast.ClassDef():
                    found.append(Name(module.name, node.name))
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                    made[name] = call
        if "rule" in made:
            parts = [x.id for x in made["rule"].args if isinstance(x, ast.Name)]
            for call in (made[name] for name in ("rule", *parts) if name in made):
                of = folder.definition(module.imports.get(getattr(call.func, "id", ""), Name("")))
                found += [of] if of is not None and of.name else []
    return found


def _files(parts: dict[str, Part], own: set[str]) -> dict[str, File]:
    """Make a file for each part, and those of what facades pass on."""
    names = {name: name for name in own}
    found = {}
    for name, part in parts.items():
        flat = names.get(name) if name in own else _flat_name(name, own)
        assert flat is not None
        found[flat] = File(flat, (part,), generated=name in own)
    passed = [use for part in parts.values() for use in part.passed]
    for module, flat in FACADES.items():
        exports = frozenset(use.of for use in passed if use.via == module)
        if exports:
            found[flat] = File(flat, (), facade=module, exports=exports)
    return found


def _flat_name(name: str, own: set[str]) -> str:
    """Return what a module of support is called in the flat folder."""
    flat = name.removeprefix("support.").replace(".", "_")
    flat = TAKEN.get(flat, flat)
    return f"{flat}_support" if flat in own else flat
