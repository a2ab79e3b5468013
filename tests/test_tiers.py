"""The choice of the first tier: what is left out, and that nothing is left out unseen."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest
import reached
from packaged import CORE, FACTS, NAMES
from reached import Code, code
from tiers import CHANGED, CODES, Recorder, first, first_only

from mnemic import pipeline
from mnemic.cli.app import app

HERE = Path(__file__).parent


@dataclass(frozen=True, eq=False)
class Item:
    """A case of a test, as pytest collects it."""

    nodeid: str
    callspec: Any = None
    marks: tuple[str | pytest.Mark, ...] = ()

    def get_closest_marker(self, name: str) -> str | pytest.Mark | None:
        return next((x for x in self.marks if name in (x, getattr(x, "name", x))), None)


def cases(name: str, *values: dict[str, Any], marks: tuple[Any, ...] = ()) -> list[Item]:
    return [Item(f"{name}[{x}]", SimpleNamespace(params=x), marks) for x in values]


def chosen(items: list[Item], *changed: str) -> list[Any]:
    return [x.callspec.params if x.callspec else x.nodeid for x in first(items, {*changed})]


def test_a_matrix_of_specs_is_cut_to_the_core_and_what_has_changed() -> None:
    items = cases("matrix", *({"name": name} for name in NAMES))
    assert [x["name"] for x in chosen(items)] == [*CORE]
    other = next(name for name in NAMES if name not in CORE)
    assert {x["name"] for x in chosen(items, other)} == {*CORE, other}


def test_a_test_of_a_few_specs_stays_whole() -> None:
    few = [name for name in NAMES if name not in CORE][:5]
    assert len(chosen(cases("few", *({"name": name} for name in few)))) == 5


def test_what_is_marked_is_left_out_and_what_is_not_stays() -> None:
    items = [Item("plain"), *cases("slow", {"x": 1}, {"x": 2}, marks=("full",))]
    assert chosen(items) == ["plain"]


@pytest.mark.parametrize(
    ("count", "kept"),
    [(1, [0]), (2, [0, 9]), (4, [0, 3, 6, 9]), (10, [*range(10)]), (12, [*range(10)])],
)
def test_of_what_is_marked_some_as_many_stay_as_it_says(count: int, kept: list[int]) -> None:
    mark = pytest.mark.some(count).mark
    items = cases("variants", *({"x": x} for x in range(10)), marks=(mark,))
    assert [x["x"] for x in chosen(items)] == kept


def test_of_what_is_marked_some_a_changed_spec_stays() -> None:
    mark = pytest.mark.some(2).mark
    items = cases("variants", *({"name": name} for name in NAMES[:5]), marks=(mark,))
    assert [x["name"] for x in chosen(items)] == [NAMES[0], NAMES[4]]
    assert [x["name"] for x in chosen(items, NAMES[2])] == [NAMES[0], NAMES[2], NAMES[4]]


def test_of_variants_the_kept_ones_stay() -> None:
    found = first_only([("a", 1), ("b", 2), "c"], ("b", 2))
    assert [x.values for x in found] == [("a", 1), ("b", 2), ("c",)]
    assert [bool(x.marks) for x in found] == [True, False, True]
    assert {mark.name for x in found for mark in x.marks} == {"full"}
    for kept in ((), ("d",)):
        with pytest.raises(AssertionError):
            first_only("abc", *kept)


def test_three_parametrisations_meet_in_pairs() -> None:
    every = [{"x": x, "y": y, "z": z} for x in range(4) for y in range(3) for z in range(3)]
    kept = chosen(cases("cube", *every))
    assert len(kept) < len(every) / 2
    for one, other in ("xy", "xz", "yz"):
        assert {(v[one], v[other]) for v in kept} == {(v[one], v[other]) for v in every}
    two = [{"x": x, "y": y, "z": ({},)} for x in range(4) for y in range(3)]
    assert chosen(cases("square", *two)) == two


def test_of_what_is_marked_few_each_value_is_met() -> None:
    every = [{"x": x, "y": y} for x in range(5) for y in range(3)]
    kept = chosen(cases("square", *every, marks=("few",)))
    assert len(kept) == 5
    assert ({v["x"] for v in kept}, {v["y"] for v in kept}) == ({*range(5)}, {*range(3)})


def test_of_specs_that_are_marked_few_each_trait_meets_each_value() -> None:
    every = [{"name": name, "form": form} for name in NAMES for form in ("recurrent", "chunk")
             if form in FACTS[name]["forms"]]  # fmt: skip
    items = cases("matrix", *every, marks=("few",))
    kept = chosen(items)
    assert {x["name"] for x in kept} < {*CORE}
    for found in (kept, [x for x in every if x["name"] in CORE]):
        met = {(trait, x["form"]) for x in found for trait in FACTS[x["name"]]["traits"]}
        assert met == {(trait, x["form"]) for x in every for trait in FACTS[x["name"]]["traits"]}
    other = next(x["name"] for x in every if x["name"] not in CORE and x["form"] == "chunk")
    assert [x for x in chosen(items, other) if x["name"] == other] == [
        {"name": other, "form": "recurrent"}, {"name": other, "form": "chunk"},
    ]  # fmt: skip


def test_a_matrix_without_a_spec_of_the_core_is_an_error() -> None:
    others = [name for name in NAMES if name not in CORE]
    with pytest.raises(pytest.UsageError, match="matrix: of its specs none is in packaged"):
        chosen(cases("matrix", *({"name": name} for name in others)))


# -- what the first tier has ---------------------------------------------------------------------


@dataclass
class Found:
    """The tests of a file, and the texts in those that the first tier runs."""

    marked: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)


def _tests(path: Path) -> Found:
    found = Found()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = [x for x in tree.body if isinstance(x, ast.Assign)]
    whole = any(_marks(x) for x in assigned if ast.unparse(x.targets[0]) == "pytestmark")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marked = whole or any(map(_marks, node.decorator_list))
            (found.marked if marked else found.plain).append(node.name)
            if not marked:
                found.texts |= set(_texts(node))
    return found


def _marks(tree: ast.AST) -> bool:
    return "pytest.mark.full" in ast.unparse(tree)


def _texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


SLOW = {
    "hf/test_processes.py": "a run that is killed and one in two processes take minutes",
    "search/study/test_postgres.py": "ten seconds; beside it are test_owners.py and test_grid.py",
}
"""Files of the whole matrix alone, with the reason."""


def test_every_file_has_tests_in_the_first_tier() -> None:
    for path in HERE.rglob("test_*.py"):
        found, name = _tests(path), path.relative_to(HERE).as_posix()
        assert bool(found.plain) != (name in SLOW), f"{name}: {len(found.marked)} marked full"


def test_no_law_is_marked() -> None:
    """Laws are cut by the choice of specs, never as a whole."""
    for name in ("test_laws", "test_forms", "test_corners", "test_adjoint", "test_reading"):
        assert _tests(HERE / "codegen" / f"{name}.py").marked == []


def test_every_command_is_run() -> None:
    commands = {info.name or info.callback.__name__.removesuffix("_")  # type: ignore[union-attr]
                for info in app.registered_commands}  # fmt: skip
    run = {text for path in (HERE / "cli").glob("test_*.py") for text in _tests(path).texts}
    assert commands
    assert commands - run == set()


# -- what a change reaches -----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A compiled folder that may be edited."""
    return Path(copytree(pipeline.compile("gated-deltanet").folder, tmp_path / "own"))


@pytest.fixture(scope="module")
def before() -> Code:
    """The digests of the folder as it is compiled."""
    return code(pipeline.compile("gated-deltanet").folder, "gated_deltanet")


def edit(path: Path, pattern: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    changed = re.sub(pattern, new, text, count=1)
    assert changed != text
    path.write_text(changed, encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "pattern", "new"),
    [
        ("gated_deltanet.py", r"import math\n", "import math\nOTHER = 1\n"),
        ("kernels.py", r"import triton\n", "import triton\nOTHER = 1\n"),
        ("support/chunks.py", r"def unit_lower_inverse\(", "def unit_lower_inverse(more, "),
        ("support/operator.py", r"class Operator\b", "class Operator(object)"),
    ],
)
def test_a_change_of_what_runs_is_seen(
    folder: Path, before: Code, file: str, pattern: str, new: str
) -> None:
    edit(folder / file, pattern, new)
    after = code(folder, "gated_deltanet")
    assert (before.generated != after.generated) == ("/" not in file)
    assert (before.support != after.support) == ("/" in file)


@pytest.mark.parametrize(
    ("file", "pattern", "new"),
    [
        ("gated_deltanet.py", '^"""', '"""Other words: '),
        ("support/operator.py", r"import torch\n", "import torch  # a comment\n"),
        ("support/interpolation.py", r"def kernel_rows\(", "def kernel_rows(more, "),
    ],
)
def test_words_and_what_others_call_are_not(
    folder: Path, before: Code, file: str, pattern: str, new: str
) -> None:
    edit(folder / file, pattern, new)
    assert code(folder, "gated_deltanet") == before


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty table of what has passed."""
    path = tmp_path / "passed.json"
    path.write_text('{"generated": {}, "support": {}}', encoding="utf-8")
    monkeypatch.setattr(reached, "PASSED", path)
    return path


def codes(**digests: str) -> dict[str, Code]:
    """Return all specs, each with its own digest and with pieces that all, few or one reach."""
    few = NAMES[: len(NAMES) // 4]
    return {
        name: Code(
            digests.get("generated", "1") if name == NAMES[-1] else "1",
            {"all": digests.get("shared", "1")}
            | ({"few": digests.get("few", "1")} if name in few else {}),
        )
        for name in NAMES
    }  # fmt: skip


@pytest.mark.usefixtures("passed")
def test_what_a_change_reaches_runs_in_full() -> None:
    """Specs of another source, and those of a changed piece that few reach; not of a shared one."""
    assert reached.changed(codes()) == [*NAMES]
    reached.record(codes(), NAMES, [])
    assert reached.changed(codes()) == []
    assert reached.changed(codes(shared="2")) == []
    assert reached.changed(codes(few="2", shared="2")) == [*NAMES[: len(NAMES) // 4]]
    assert reached.changed(codes(generated="2")) == [NAMES[-1]]


@pytest.mark.usefixtures("passed")
def test_what_a_failed_spec_reaches_is_not_recorded() -> None:
    reached.record(codes(), NAMES, [])
    reached.record(codes(few="2", generated="2"), NAMES, [NAMES[0], NAMES[-1]])
    assert reached.changed(codes(few="2", generated="2")) == [*NAMES[: len(NAMES) // 4], NAMES[-1]]


def end(failed: list[dict[str, Any]], status: int, **options: Any) -> list[str] | None:
    """Return what passed of two changed specs in a run with reports of these failures."""
    names = ["atlas", "titans"]
    stash = {CHANGED: names, CODES: {}}
    config = SimpleNamespace(
        args=[str(HERE)], stash=stash, getoption=lambda name, _=None: options.get(name)
    )
    recorder, written = Recorder(config), []
    for properties in failed:
        told = SimpleNamespace(failed=True, user_properties=list(properties.items()))
        recorder.pytest_runtest_logreport(told)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reached, "record", lambda _, ran, bad: written.append((ran, bad)))
        recorder.pytest_sessionfinish(SimpleNamespace(config=config), status)
    return [n for ran, bad in written for n in ran if n not in bad] if written else None


def test_a_spec_is_recorded_where_each_of_its_cases_passed() -> None:
    assert end([], 0) == ["atlas", "titans"]
    assert end([], 0, tier="full") == [*NAMES]
    assert end([{"specs": ["titans"]}, {"specs": []}], 1) == ["atlas"]
    assert end([{}], 1) == [], "a process that died does not tell its specs"
    assert end([], 2) is None, "a run that was cut short"
    assert end([], 0, keyword="atlas") is None
    assert end([], 1, maxfail=1) is None
