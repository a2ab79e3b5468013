"""`mnemic compile`: what it writes, and where it must not."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from mnemic.codegen import package
from mnemic.codegen.flat import published
from mnemic.codegen.generator import generator

KEYS = {"name", "hash", "folder", "module", "files", "seconds", "warnings"}


def test_a_folder_that_runs(mnemic, tmp_path):
    folder = tmp_path / "layers" / "gated_deltanet"
    done = mnemic("compile", "gated-deltanet", "-o", folder)
    assert (done.code, done.err) == (0, "")
    assert str(folder) in done.out
    first = [line.split()[0] for line in done.out.splitlines()[1:5]]
    assert first == ["DERIVATION.md", "gated_deltanet.py", "kernels.py", "step.py"]
    files = [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"]
    assert f"and {len(files) - 4} files" in done.out
    program = "from gated_deltanet import Layer, rule; print(rule.name)"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=folder.parent, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert ran.stdout == "gated-deltanet\n"


def test_json(mnemic, tmp_path):
    found = mnemic("compile", "deltanet", "-o", tmp_path / "d", "--json").json
    assert found.keys() == KEYS
    assert found["module"] in found["files"]
    assert all((tmp_path / "d" / name).is_file() for name in found["files"])


def test_the_folder_says_what_wrote_it(mnemic, tmp_path):
    out = tmp_path / "layer"
    assert mnemic("compile", "deltanet", "-o", out).code == 0
    told = json.loads((out / "mnemic.json").read_text())
    assert told["mnemic"] == version("mnemic")
    assert told["generator"] == generator()


def test_another_version_s_folder_runs_and_is_replaced(mnemic, tmp_path):
    """It stands on its own code; the marker's digests tell that nobody has changed it."""
    out = tmp_path / "layer"
    assert mnemic("compile", "deltanet", "-o", out).code == 0
    told = json.loads((out / "mnemic.json").read_text())
    old = {"files": told["files"]}  # as before versions were told
    (out / "mnemic.json").write_text(json.dumps(old))
    test = [sys.executable, str(out / "test_deltanet.py")]
    assert subprocess.run(test, check=False, capture_output=True).returncode == 0
    assert mnemic("compile", "deltanet", "-o", out).code == 0
    assert json.loads((out / "mnemic.json").read_text()) == told


def test_again_in_the_same_folder(mnemic, tmp_path):
    assert mnemic("compile", "deltanet", "-o", tmp_path / "d").code == 0
    assert mnemic("compile", "gla", "-o", tmp_path / "d", "--json").json["name"] == "gla"


def test_a_deep_memory_token_by_token_is_told_of_once(mnemic, tmp_path):
    spec = tmp_path / "slow.yaml"
    spec.write_text("name: slow\nmemory: mlp\nbias: l2\n")
    done = mnemic("compile", spec)
    assert (done.code, done.out.count("slow, not wrong")) == (0, 1)
    assert mnemic("derive", spec).out.count("slow, not wrong") == 1
    assert mnemic("check", spec, "--derive").out.count("slow, not wrong") == 1
    assert "warning" not in mnemic("compile", "titans").out


def test_the_cache(mnemic, cache):
    found = mnemic("compile", "deltanet", "--json").json
    assert found["folder"].startswith(str(cache))


@pytest.mark.full
def test_what_the_cache_holds_is_this_spec(mnemic, cache, tmp_path):
    """Also where only its title is another; and it is not what somebody else has written there."""
    spec, out = tmp_path / "mine.yaml", tmp_path / "d"
    for title in ("One", "Two"):
        spec.write_text(f"name: mine\ntitle: {title}\nbias: dot\n")
        folder = Path(mnemic("compile", spec, "--json").json["folder"])
        assert f"title: {title}" in (folder / "spec.yaml").read_text()
        assert mnemic("compile", spec, "-o", out).code == 0
        told = published(package.read(folder) or {})
        assert told["spec.yaml"] == (folder / "spec.yaml").read_text()
        assert package.read(out) == told
    for name, other in (
        ("mine.py", b"print('changed')"),
        ("mine.py", b"\xff"),
        ("mnemic.json", b"{"),
    ):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(other)
        assert mnemic("compile", spec, "-o", out).code == 0
        assert "def recurrent" in (out / "mine.py").read_text()
        (folder / name).write_bytes(kept)


def test_a_foreign_folder(mnemic, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    done = mnemic("compile", "deltanet", "-o", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"mnemic: {tmp_path}: holds files that mnemic did not write (thesis.tex); choose another\n"
    )
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_folder_whose_marker_is_damaged(mnemic, tmp_path):
    out = tmp_path / "d"
    assert mnemic("compile", "deltanet", "-o", out).code == 0
    for text in ("{", "[]", "{}", '{"files": 3}'):
        (out / "mnemic.json").write_text(text)
        done = mnemic("compile", "deltanet", "-o", out)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert done.err.startswith(f"mnemic: {out / 'mnemic.json'}: damaged")


def test_a_damaged_cache_is_made_again(mnemic, cache):
    folder = Path(mnemic("compile", "deltanet", "--json").json["folder"])
    for name in ("mnemic.json", "deltanet.py"):
        kept = (folder / name).read_text()
        (folder / name).write_text("{")
        assert Path(mnemic("compile", "deltanet", "--json").json["folder"]) == folder
        assert (folder / name).read_text() == kept
        assert (folder.with_name(f"{folder.name}.changed") / name).read_text() == "{"


def test_a_file_in_the_way(mnemic, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    done = mnemic("compile", "deltanet", "-o", path, "--json")
    assert (done.code, done.err) == (2, "")
    assert done.json == {
        "error": "UsageError",
        "exit_code": 2,
        "message": f"{path}: read a file, a folder to write to is needed",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder(mnemic, tmp_path):
    tmp_path.chmod(0o500)
    done = mnemic("compile", "deltanet", "-o", tmp_path / "d")
    assert done.code == 5
    assert done.err == f"mnemic: cannot write {tmp_path / 'd'}: Permission denied\n"


def test_a_folder_below_a_file(mnemic, tmp_path):
    (tmp_path / "file").write_text("mine")
    done = mnemic("compile", "deltanet", "-o", tmp_path / "file" / "d")
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith(f"mnemic: cannot write {tmp_path / 'file' / 'd'}: ")
    assert done.err.count("\n") == 1


def test_an_unknown_spec(mnemic, tmp_path):
    done = mnemic("compile", "deltanett", "-o", tmp_path / "d")
    assert done.code == 2
    assert done.err == "mnemic: no packaged spec is called 'deltanett'; did you mean 'deltanet'?\n"
    assert not (tmp_path / "d").exists()


def test_a_folder_without_tools(mnemic, tmp_path):
    done = mnemic("compile", "deltanet", "-o", tmp_path / "d", "--no-tools", "--json")
    files = set(done.json["files"])
    assert done.code == 0
    assert {"__init__.py", "deltanet.py", "kernels.py", "layer.py"} <= files
    assert not {"__main__.py", "test_deltanet.py", "verify.py", "tune.py", "selftest.py"} & files


def test_a_folder_that_was_changed_by_hand_is_not_written_over(mnemic, tmp_path):
    """It once was, without a word."""
    folder = tmp_path / "mine"
    assert mnemic("compile", "deltanet", "-o", folder).code == 0
    (folder / "verified.json").write_text("{}")
    assert mnemic("compile", "deltanet", "-o", folder).code == 0
    code = folder / "deltanet.py"
    code.write_text(code.read_text() + "# mine\n")
    done = mnemic("compile", "deltanet", "-o", folder)
    assert done.code == 2
    assert done.err == (
        f"mnemic: {folder}: deltanet.py changed since mnemic wrote it; choose another folder, or "
        "remove this one\n"
    )
    assert code.read_text().endswith("# mine\n")
