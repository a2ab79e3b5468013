"""The pages on the code: the names on them are there, and what they show is so."""

import ast
import doctest
import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from mnemic import pipeline
from mnemic.dsl.load import load

ROOT = Path(__file__).parents[1]
PAGES = ("CONTRIBUTING.md", "docs/architecture.md", "docs/adding.md", "docs/faults.md",
         "docs/parallel.md")  # fmt: skip
FILE = re.compile(
    r"`((?:mnemic|tests|scripts|docs|benchmarks|examples|specs)/[\w./-]+)(?:::([\w.]+))?`"
)
FUNCTION = re.compile(r"\[`([\w.]+)`\]\((?:\.\./)?(mnemic/[\w/]+\.py)\)")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)")


def text_of(page: str) -> str:
    """Return a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def defined(path: Path) -> set[str]:
    """Return the functions, classes, methods and constants of a module, by name."""
    found = set[str]()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name, body=body):
                found |= {
                    name,
                    *(f"{name}.{x.name}" for x in body if isinstance(x, ast.FunctionDef)),
                }
            case ast.Assign(targets=targets):
                found |= {x.id for x in targets if isinstance(x, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    named = FILE.findall(text_of(page))
    assert len(named) > 3
    absent = [path for path, _ in named if not (ROOT / path).exists()]
    assert absent == []
    functions = [(path, name) for path, name in named if name]
    assert [x for x in functions if x[1] not in defined(ROOT / x[0])] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    links = LINK.findall(text_of(page))
    assert links
    assert [link for link in links if not (folder / link).exists()] == []


def test_the_links_to_functions_name_them() -> None:
    named = [x for page in PAGES for x in FUNCTION.findall(text_of(page))]
    assert len(named) > 20
    wrong = [
        (name, path)
        for name, path in named
        if not {name, name.removeprefix(f"{Path(path).stem}.")} & defined(ROOT / path)
    ]
    assert wrong == []


def way_of_the_loss() -> list[tuple[str, str]]:
    """Return the functions of the table on the architecture's page, as file and name."""
    page = text_of("docs/architecture.md")
    table = page.partition("## The way in one table")[2].partition("\n## ")[0]
    found = [FUNCTION.match(row[2:]) for row in table.splitlines() if row.startswith("| [")]
    named = [(x[2], x[1]) for x in found if x]
    return [(path, name.removeprefix(f"{Path(path).stem}.")) for path, name in named]


def test_the_loss_goes_through_the_functions_of_the_table_in_its_order(tmp_path: Path) -> None:
    """By the calls of a compilation, of a loss of the page's own that nothing has cached."""
    page = text_of("docs/architecture.md")
    (spec,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (loss,) = re.findall(r"With `(expr: .+)` the line", page)
    path = tmp_path / "my-rule.yaml"
    path.write_text(re.sub(r"expr: \".+?\"", loss, spec), encoding="utf-8")
    called: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(ROOT / "mnemic")):
            called.setdefault((str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        files = pipeline.files(load(path))
    finally:
        sys.setprofile(before)
    way = way_of_the_loss()
    assert len(way) > 15
    assert [name for name in way if name not in called] == []
    assert sorted(way, key=[*called].index) == way
    (line,) = re.findall(r"is\n`(u = .+)`\.", page)
    assert f"        {line}  # (2)\n" in files["kernels.py"]


def test_what_each_stage_yields_is_what_the_architecture_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = text_of("docs/architecture.md")
    (spec,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my-rule.yaml").write_text(spec, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(ROOT / "docs" / "architecture.md"), module_relative=False)
    assert found.attempted > 20
    assert found.failed == 0
