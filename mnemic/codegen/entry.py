"""Rule → the command line that a compiled folder carries with it."""

from mnemic.codegen.titles import title_of
from mnemic.compiler.rule import Rule

LOADING = '''import importlib
import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PACKAGE = "compiled_{name}"


def load():
    """This folder as a package, whatever it is called."""
    place = importlib.util.spec_from_file_location(
        PACKAGE, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    package = importlib.util.module_from_spec(place)
    sys.modules[PACKAGE] = package
    place.loader.exec_module(package)
    return package
'''
"""What a file in a compiled folder begins with to be run from anywhere: ``load`` its package."""

MAIN = (
    '''"""{title}: ``python FOLDER verify`` and ``python FOLDER tune``, with torch alone."""

'''
    + LOADING
    + """

if __name__ == "__main__":
    layer = load().Layer
    sys.exit(importlib.import_module(f"{{PACKAGE}}.support.commands").main(layer, sys.argv[1:]))
"""
)


def source(rule: Rule, name: str) -> str:
    """Return the text of ``__main__.py``; ``name`` is the generated module's."""
    return MAIN.format(title=title_of(rule.problem.spec), name=name)
