"""Digests of all that the compiler writes for the packaged specs, to hold a refactoring against.

    python scripts/fingerprint.py write before.json        # some 40 seconds for all specs
    python scripts/fingerprint.py compare before.json      # names what is not the same any more

Both take names of specs behind the file. A digest stands for each generated file, each way of
showing the derivation, the costs, the normal form that ``diff`` compares, and the numbers that the
interpreter gives for drawn arguments.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mnemic.codegen import files
from mnemic.compiler.compare.canonical import canonical
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain import render
from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.equations import terms
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.oracle.samples import Sizes, draw
from mnemic.compiler.rule import Rule
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec

SPECS = Path(__file__).parents[1] / "specs"
SIZES = Sizes(batch=1, length=6, heads=2, key=3, value=3)


def numbers(rule: Rule) -> list[Any]:
    """Return the interpreter's outputs and states for drawn arguments."""
    x = draw(rule, SIZES)
    y, state = interpret(rule, x.q, x.k, x.v, x.coefficients, params=x.params)
    return [y.tolist(), *((name, part.tolist()) for name, part in sorted(state.items()))]


PARTS: dict[str, Callable[[Rule], Any]] = {
    "text": render.to_text,
    "json": lambda rule: json.dumps(render.to_json(rule), default=str, sort_keys=True),
    "latex": render.to_latex,
    "terms": terms,
    "costs": cost,
    "form": lambda rule: canonical(rule).text(),
    "numbers": numbers,
}


def parts(rule: Rule) -> Iterator[tuple[str, Any]]:
    """Yield everything that is written for a rule, by name."""
    for name, write in PARTS.items():
        yield name, write(rule)
    try:
        yield from files.compiled_files(rule).items()
    except InvalidSpec as refusal:
        yield "refused", str(refusal)


def fingerprint(names: list[str]) -> dict[str, str]:
    """Return the digest of each part of each spec of these names; of all specs without names."""
    found = {}
    for path in sorted(SPECS.rglob("*.yaml")):
        if names and path.stem not in names:
            continue
        for part, text in parts(derive_spec(load(path))):
            digest = hashlib.sha256(str(text).encode()).hexdigest()
            found[f"{path.stem} {part}"] = digest[:16]
    return found


def main(command: str, file: str, *names: str) -> int:
    """Write the digests, or tell which differ from those written; return the exit code."""
    found = fingerprint(list(names))
    if command == "write":
        Path(file).write_text(json.dumps(found, indent=1), encoding="utf-8")
        return 0
    known = json.loads(Path(file).read_text(encoding="utf-8"))
    wanted = {key for key in known if not names or key.split()[0] in names}
    changed = sorted(key for key in wanted | found.keys() if known.get(key) != found.get(key))
    for key in changed:
        print(key)
    print(f"{len(changed)} of {len(found)} differ")
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
