"""`mnemic derive`, `diff`, `list` and `schema`."""

import json

import jsonschema
import pytest

from mnemic.compiler.oracle import verify
from mnemic.dsl.catalogue import find, names


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
    assert done.err == "mnemic: --latex, --markdown and --json exclude one another\n"


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


@pytest.mark.usefixtures("cache")
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
