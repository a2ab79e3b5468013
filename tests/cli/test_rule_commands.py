"""`mnemic derive`, `diff`, `list` and `schema`."""

import io
import json

import jsonschema
import pytest
from rich.console import Console

from mnemic.cli import facts
from mnemic.cli.list import HEADINGS, _table
from mnemic.compiler.oracle import verify
from mnemic.dsl.catalogue import find, names
from mnemic.dsl.load import load


def test_derive_prints_the_rule(mnemic):
    done = mnemic("derive", "gated-deltanet")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("gated-deltanet: Gated DeltaNet\n")
    assert "affine" in done.out


def test_derive_as_a_document(mnemic):
    assert mnemic("derive", "deltanet", "--markdown").out.startswith("#")
    assert "\\begin{" in mnemic("derive", "deltanet", "--latex").out


def test_derive_as_json(mnemic):
    found = mnemic("derive", "huber-coordinate", "--json").json
    assert found["name"] == "huber-coordinate"
    assert found["class"]["kind"] == "residual"
    assert "checks" not in found


def test_formats_exclude_one_another(mnemic):
    done = mnemic("derive", "deltanet", "--latex", "--markdown")
    assert (done.code, done.out) == (2, "")
    assert done.err == "mnemic: --latex, --markdown, --words and --json exclude one another\n"


def test_derive_checks_itself(mnemic):
    done = mnemic("derive", "deltanet", "--check")
    assert done.code == 0
    assert "check: error signal agrees" in done.out
    assert "check: recurrence agrees" in done.out


def test_checks_beside_a_document_are_not_part_of_it(mnemic):
    done = mnemic("derive", "deltanet", "--markdown", "--check")
    assert "check:" not in done.out
    assert "mnemic: check: recurrence agrees" in done.err


@pytest.fixture
def wrong(monkeypatch):
    """A check that fails."""
    monkeypatch.setattr(verify, "recurrence", lambda rule: 0.5)


@pytest.mark.usefixtures("wrong")
def test_a_failed_check(mnemic):
    done = mnemic("derive", "deltanet", "--check")
    assert done.code == 4
    assert "check: recurrence DIFFERS, error 5.0e-01 of 1e-08" in done.out
    assert done.err == "mnemic: deltanet: derived and stated differ in recurrence\n"


@pytest.mark.usefixtures("wrong")
def test_a_failed_check_as_json(mnemic):
    done = mnemic("derive", "deltanet", "--check", "--json")
    assert (done.code, done.err) == (4, "")
    failed = [check for check in done.json["checks"] if not check["passed"]]
    assert [(c["name"], c["error"], c["tolerance"]) for c in failed] == [("recurrence", 0.5, 1e-8)]


def test_what_has_no_derivation_is_told(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mnemic: 1\nname: mine\nbias: huber\noptimizer: {method: exact}\nwindow: all\n")
    done = mnemic("derive", path)
    assert (done.code, done.out) == (3, "")
    assert "Traceback" not in done.err


def test_diff(mnemic):
    done = mnemic("diff", "deltanet", "gated-deltanet")
    assert done.code == 0
    assert done.out.startswith("A = deltanet\nB = gated-deltanet\n")
    assert "A is B at α = 1" in done.out


def test_diff_as_json(mnemic):
    found = mnemic("diff", "deltanet", "gated-deltanet", "--json").json
    assert (found["a"], found["b"]) == ("deltanet", "gated-deltanet")
    assert {"axes", "terms", "structure", "verdict"} <= found.keys()


@pytest.fixture
def unlisted(monkeypatch, tmp_path):
    """No facts come with the package, as if every spec were a user's own."""
    monkeypatch.setattr(facts, "PACKAGED", tmp_path / "none.json")


@pytest.mark.usefixtures("cache", "unlisted")
def test_list_derives_once(mnemic, monkeypatch):
    first = mnemic("list", "--family", "affine", "--json")
    monkeypatch.setattr("mnemic.pipeline.derive", None)
    assert mnemic("list", "--family", "affine", "--json").out == first.out


@pytest.mark.usefixtures("cache")
def test_list(mnemic):
    found = mnemic("list", "--json").json
    assert sorted(row["name"] for row in found["specs"]) == list(names())
    assert found["sizes"] == {"d_k": 64, "d_v": 64, "T": 2048}
    jsonschema.validate(found, LISTED)
    done = mnemic("list")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].split() == [
        "family", "name", "class", "form", "train", "decode", "state", "title", "source",
    ]  # fmt: skip
    assert lines[-1] == f"{len(names())} specs; FLOPs a token and head at d_k = d_v = 64"
    assert len(lines) == len(names()) + 2


@pytest.mark.parametrize("width", [20, 60, 80, 100, 140, 200, 400])
def test_a_narrow_list_leaves_columns_out_and_cuts_no_number(width):
    rows = [row(name, "deltanet", title) for name, title in (
        ("a", "A title " * 9), ("log-linear-gated-deltanet", None))]  # fmt: skip
    table, left = _table(rows, width)
    page = Console(width=max(width, 40), file=io.StringIO())
    page.print(table)
    lines = page.file.getvalue().splitlines()
    assert set(lines[0].split()) | set(left) == set(HEADINGS)
    assert "name" not in left
    texts = {
        "name": "log-linear-gated-deltanet",
        "class": "affine",
        "form": "chunk",
        "train": "1.23M",
        "decode": "45.6k",
        "state": "D*d_v*log(T)",
        "family": "deltanet",
    }
    shown = " ".join(lines).split()
    assert all((text in shown) == (heading not in left) for heading, text in texts.items())
    assert all(len(line.rstrip()) <= max(width, 26) for line in lines)
    assert not left or width < 140


def row(name, family, title):
    return {"name": name, "family": family, "class": "affine", "forms": ["recurrent", "chunk"],
            "missing": None, "state": "D*d_v*log(T)", "title": title,
            "source": {"paper": "P " * 30},
            "costs": {"train_flops": 1.23e6, "decode_flops": 45.6e3}}  # fmt: skip


@pytest.mark.usefixtures("cache", "unlisted")
def test_many_specs_are_derived_by_several_processes(monkeypatch):
    """As one alone derives them, and nothing that is not shown."""
    specs = {name: load(name) for name in sorted(names()) if find(name).parent.name == "affine"}
    monkeypatch.setattr(facts, "EACH", 4)
    monkeypatch.setattr(facts, "_cores", lambda: 2)
    told = []
    found = facts.gathered(specs, told.append)
    assert told == list(specs)
    assert found["deltanet"] == facts.facts(specs["deltanet"])
    assert "warnings" not in found["deltanet"]
    assert list(found) == list(specs)


LISTED = {
    "properties": {
        "specs": {
            "items": {
                "required": ["name", "title", "family", "class", "forms", "missing", "state",
                             "costs", "source"],
                "properties": {
                    "costs": {"additionalProperties": {"type": "number"}, "minProperties": 5},
                    "forms": {"type": "array", "minItems": 1},
                },
                "additionalProperties": True,
            }
        }
    }
}  # fmt: skip


def test_no_such_family(mnemic):
    done = mnemic("list", "--family", "afine")
    assert (done.code, done.out) == (2, "")
    families = ", ".join(sorted({find(name).parent.name for name in names()}))
    assert done.err == (
        f"mnemic: --family: no such family: read 'afine', allowed: {families}; "
        "did you mean 'affine'?\n"
    )


def listed(done):
    """The names of a list as JSON."""
    return {row["name"] for row in done.json["specs"]}


def test_list_of_a_class(mnemic):
    rows = mnemic("list", "--json").json["specs"]
    residual = {row["name"] for row in rows if row["class"] == "residual"}
    assert listed(mnemic("list", "--class", "residual", "--json")) == residual != set()
    done = mnemic("list", "--class", "residul")
    assert (done.code, done.out) == (2, "")
    assert "--class: no such class: read 'residul', allowed: additive, affine, " in done.err
    assert "did you mean 'residual'?" in done.err


def test_list_of_a_paper(mnemic):
    found = listed(mnemic("list", "--paper", "titans", "--json"))
    assert {"titans", "titans-mac"} <= found
    assert "retnet" not in found
    assert listed(mnemic("list", "--paper", "Titans", "--class", "frozen", "--json")) <= found
    assert "retnet" in listed(mnemic("list", "--paper", "2023", "--json"))
    done = mnemic("list", "--paper", "Behruz")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "mnemic: --paper: no source has this: read 'Behruz'; did you mean 'Behrouz'?\n"
    )


@pytest.mark.usefixtures("unlisted")
@pytest.mark.parametrize("broken", ["", "[]", "{", '{"x": 1}'])
def test_a_spoilt_cache_is_made_anew(mnemic, cache, broken):
    first = mnemic("list", "--family", "second-order", "--json").out
    (place,) = cache.glob("*/facts.json")
    place.write_text(broken)
    assert mnemic("list", "--family", "second-order", "--json").out == first


def test_schema(mnemic, tmp_path):
    path = tmp_path / "mnemic.schema.json"
    printed = json.loads(mnemic("schema").out)
    assert mnemic("schema", "-o", path).code == 0
    assert mnemic("schema", "-o", path).code == 0, "our own file may be replaced"
    assert json.loads(path.read_text()) == printed
    jsonschema.Draft202012Validator.check_schema(printed)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_schema_never_replaces_another_file(mnemic, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    done = mnemic("schema", "-o", path)
    assert (done.code, done.out) == (2, "")
    assert done.err == (f"mnemic: {path}: not a schema that mnemic wrote; choose another file\n")
    assert path.read_text() == "mine"
