"""Rule → the test that a compiled folder carries with it."""

from mnemic.codegen.entry import LOADING
from mnemic.codegen.titles import title_of
from mnemic.compiler.rule import Rule

TEST = (
    '''"""Test of {title}: ``python test_{name}.py``, from anywhere, with torch alone.

The forms agree on outputs, states and gradients at several chunk sizes; a sequence in pieces
with carried state equals the whole; the layer's steps equal its parallel form.
"""

'''
    + LOADING
    + '''

def passed():
    """Print every check, and tell whether all passed."""
    layer = load().Layer
    return importlib.import_module(f"{{PACKAGE}}.support.selftest").run(layer)


def test_{name}():
    """The same for pytest."""
    assert passed()


if __name__ == "__main__":
    sys.exit(0 if passed() else 1)
'''
)


def source(rule: Rule, name: str) -> str:
    """Return the text of ``test_<name>.py``; ``name`` is the generated module's."""
    return TEST.format(title=title_of(rule.problem.spec), name=name)
