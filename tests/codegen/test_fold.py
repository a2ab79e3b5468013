"""Support folded for one spec: what its generated modules declare decides, and nothing else."""

import ast
from textwrap import dedent

import pytest

from mnemic.codegen.flat.fold import folded
from mnemic.codegen.flat.modules import Name, modules
from mnemic.codegen.flat.pack import packed
from mnemic.codegen.flat.reach import Folder

SIGNATURE = """
from dataclasses import dataclass, replace

@dataclass(frozen=True)
class State:
    name: str
    axes: str = "vk"

    @property
    def kept(self) -> bool:
        return "n" in self.axes

@dataclass(frozen=True)
class Signature:
    states: tuple[State, ...]
    steps: int = 1
    levels: int = 0
    keys: tuple[str, ...] = ()

    @property
    def deep(self) -> bool:
        return self.levels > 0 and self.steps > 1
"""

GENERATED = """
from .support.signature import Signature, State
from .support.run import run

SIGNATURE = Signature(states=(State("W"),))
RULE = run
"""


def folded_run(body: str, generated: str = GENERATED, signature: str = SIGNATURE) -> str:
    """The module ``run`` with this body, folded for what the generated module declares."""
    files = {
        "mine.py": generated,
        "support/__init__.py": "",
        "support/signature.py": signature,
        "support/run.py": "from .signature import Signature, State\n\n\n" + dedent(body),
    }
    found = folded(Folder(modules(files)), [Name("mine")], {"mine"}, [])
    source = found.modules["support.run"].source
    ast.parse(source)
    return source


@pytest.mark.parametrize(
    "test",
    [
        "signature.levels",
        "signature.steps > 1",
        "signature.deep",
        "signature.keys",
        "x and signature.levels",
        "any(s.kept for s in signature.states)",
        "tuple(s for s in signature.states if s.kept)",
        "'K' in signature.keys",
        "not signature.states",
    ],
)
def test_a_branch_that_cannot_be_taken_is_left_out(test: str) -> None:
    source = folded_run(f"""
        def run(signature: Signature, x: int) -> int:
            if {test}:
                return x + 41
            return x
    """)
    assert "41" not in source
    assert "return x" in source


@pytest.mark.parametrize("test", ["x", "x > signature.steps", "signature.states[0].name == x"])
def test_a_branch_that_may_be_taken_stays(test: str) -> None:
    source = folded_run(f"""
        def run(signature: Signature, x: int) -> int:
            if {test}:
                return x + 41
            return x
    """)
    assert "41" in source


def test_ways_of_a_chain() -> None:
    source = folded_run("""
        def run(signature: Signature, x: int) -> int:
            width = signature.steps
            if signature.levels:
                y = 1
            elif x:
                y = 2
            elif width == 1:
                y = 3
            else:
                y = 4
            return y if width > 1 else -y
    """)
    names: dict[str, object] = {"Signature": object}
    exec(source[source.index("def run") :], names)
    run = names["run"]
    assert callable(run)
    assert [run(None, x) for x in (1, 0)] == [-2, -3]
    assert "y = 1" not in source
    assert "y = 4" not in source
    assert "width" not in source


def test_a_value_that_counts_as_true_is_not_taken_for_true() -> None:
    source = folded_run("""
        def run(signature: Signature, x: int) -> int:
            wanted = x or signature.steps
            none = x and signature.levels
            return (wanted + 7) // (41 if none is None else 2)
    """)
    assert "x or 1" in source
    assert "wanted + 7" in source
    assert "41" in source


def test_what_differs_between_instances_is_left_open() -> None:
    two = GENERATED + "\nOTHER = Signature(states=(), levels=3)\n"
    body = """
        def run(signature: Signature, x: int) -> int:
            return x + 41 if signature.levels else x
    """
    assert "41" not in folded_run(body)
    assert "41" in folded_run(body, generated=two)


def test_what_a_copy_may_have_changed_is_left_open() -> None:
    source = folded_run("""
        from dataclasses import replace

        def deeper(signature: Signature) -> Signature:
            return replace(signature, levels=2)

        def run(signature: Signature, x: int) -> int:
            return x + 41 if deeper(signature).levels else x
    """)
    assert "41" in source


def test_an_attribute_that_is_bound_again_is_left_open() -> None:
    body = """
        class Run:
            def __init__(self, signature: Signature) -> None:
                self.steps = signature.steps

            def twice(self, x: int) -> int:
                return x + 41 if self.steps > 1 else x

        def run(signature: Signature, x: int) -> int:
            made = Run(signature)
            {again}
            return made.twice(x)
    """
    assert "41" not in folded_run(body.format(again="pass"))
    assert "41" in folded_run(body.format(again="made.steps = 2"))


def test_a_call_that_does_something_stays() -> None:
    source = folded_run("""
        SEEN: list[int] = []

        def noted(x: int) -> bool:
            SEEN.append(x)
            return False

        def checked(x: int) -> None:
            if x < 0:
                raise ValueError(x)

        def run(signature: Signature, x: int) -> int:
            checked(x)
            if noted(x) and signature.levels:
                return 41
            return x
    """)
    assert "checked(x)" in source
    assert "noted(x)" in source


def test_what_does_nothing_is_not_called() -> None:
    source = folded_run("""
        def spread(signature: Signature, x: int) -> int:
            if signature.steps == 1:
                return x
            return x * signature.steps

        def fitting(signature: Signature, x: int) -> None:
            if signature.levels and x > signature.levels:
                raise ValueError(x)

        def run(signature: Signature, x: int) -> int:
            fitting(signature, x)
            y = spread(signature, x + 1)
            return y * signature.steps
    """)
    assert "spread" not in source
    assert "fitting" not in source
    assert "y = (x + 1)" in source or "y = x + 1" in source
    assert source.rstrip().endswith("return y")


def test_loops_without_a_turn_and_empty_parts_are_left_out() -> None:
    source = folded_run("""
        def run(signature: Signature, x: int) -> tuple[str, ...]:
            found = ["k", "v", *signature.keys]
            for key in signature.keys:
                found.append(key)
            found += [s.name for s in signature.states if s.kept]
            return ("q", *found)
    """)
    assert "signature.keys" not in source
    assert "for " not in source
    assert '"k", "v"]' in source


def test_methods_that_nobody_calls_are_left_out_but_for_the_layers() -> None:
    shared = """
        class Base:
            def told(self) -> int:
                return self._own()

            def _own(self) -> int:
                return len(repr(self))

            def _spare(self) -> int:
                return 2

            def public(self) -> int:
                return 3

        def run() -> int:
            return Base().told()
    """
    files = {
        "mine.py": GENERATED,
        "support/__init__.py": "",
        "support/signature.py": SIGNATURE,
        "support/run.py": dedent(shared),
    }
    folder = Folder(modules(files))
    for api, kept in (([], False), ([Name("support.run", "Base")], True)):
        found = folded(folder, [Name("mine")], {"mine"}, api).modules["support.run"].source
        assert ("public" in found) is kept
        assert "_spare" not in found
        assert "_own" in found


def test_parameters_one_below_another_are_packed() -> None:
    names = [f"rows_{i}" for i in range(20)] + ["K: tl.constexpr", "V: tl.constexpr"]
    kernel = "def kernel(\n" + "".join(f"    {n},\n" for n in names) + "):\n    return K\n"
    short = "def short(\n    x,\n    y,\n):\n    return x\n"
    found = packed(kernel + short)
    told = ast.parse(found).body[0]
    assert isinstance(told, ast.FunctionDef)
    assert [ast.unparse(a) for a in told.args.args] == names
    assert len(found.splitlines()) < 15
    assert max(map(len, found.splitlines())) <= 100
    assert found.endswith(short)
