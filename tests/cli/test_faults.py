"""What befalls a command from outside: one message, nothing half-written, the next call works."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from faulty import begun, bound_by_modes, ended, small_files
from tiers import first_only
from typer.testing import CliRunner

from mnemic.cli.app import app
from mnemic.codegen import package
from mnemic.errors import UsageError
from mnemic.models.files import replacing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variable of a cache that has deltanet and dot compiled, which tests read alone."""
    told = {"MNEMIC_CACHE": str(tmp_path_factory.mktemp("cache"))}
    out = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MNEMIC_CACHE", told["MNEMIC_CACHE"])
        for name in ("deltanet", "dot"):
            for arguments in (("compile", name), ("compile", name, "-o", str(out / name)),
                              ("check", name)):  # fmt: skip
                assert CliRunner().invoke(app, arguments).exit_code == 0
    return told


@pytest.fixture
def cold(warm, tmp_path) -> dict[str, str]:
    """A copy of that cache, for a test that harms it."""
    shutil.copytree(warm["MNEMIC_CACHE"], tmp_path / "cache")
    return {"MNEMIC_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def again(warm, tmp_path, monkeypatch, mnemic):
    """The command in this process with that cache, in the folder of the test, as processes that
    it starts have them."""
    monkeypatch.setenv("MNEMIC_CACHE", warm["MNEMIC_CACHE"])
    monkeypatch.chdir(tmp_path)
    return mnemic


def left_in(folder: Path) -> list[str]:
    """What lies in a folder, hidden files too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


MIDST = """
import os, signal, sys
from mnemic.codegen import package
fill = package._fill
def then(folder, files):
    fill(folder, dict(list(files.items())[:3]))
    os.kill(os.getpid(), signal.{name})
    fill(folder, files)
package._fill = then
from mnemic.cli import main
main()
"""


@pytest.mark.parametrize(
    ("name", "code", "word"),
    [
        ("SIGINT", 130, "interrupted"),
        pytest.param("SIGTERM", 143, "terminated", marks=pytest.mark.full),
    ],
)
def test_a_signal_in_the_midst_of_writing_a_folder(tmp_path, again, name, code, word):
    done = subprocess.run(
        [sys.executable, "-c", MIDST.format(name=name), "compile", "deltanet", "-o", "d"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"mnemic: {word}\n")
    assert left_in(tmp_path) == []
    assert again("compile", "deltanet", "-o", "d").code == 0
    assert package.read(tmp_path / "d")


EARLY = """
import os, signal
from mnemic.cli import main
import mnemic.cli.ending as ending
prepare = ending._prepare
def then():
    prepare()
    os.kill(os.getpid(), signal.{name})
ending._prepare = then
main()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_before_the_command_has_begun(name, code):
    """While the commands are imported."""
    done = subprocess.run([sys.executable, "-c", EARLY.format(name=name)], capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"mnemic: {'interrupted' if code == 130 else 'terminated'}\n"


@pytest.mark.parametrize("arguments", [("check", "deltanet", "--json"), ("schema",), ("list",)])
def test_standard_output_on_a_full_disk(arguments):
    with Path("/dev/full").open("w") as full:
        code, _, err = ended(begun(*arguments, stdout=full))
    assert (code, err) == (5, "mnemic: the system: No space left on device\n")


def test_no_standard_output_at_all():
    """``>&-``: there is nobody to print to, and nothing goes wrong."""
    for arguments in ("list", "check deltanet --json"):
        command = f"{sys.executable} -m mnemic {arguments} >&-"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("compile", "deltanet", "-o", "d"), "d"),
        pytest.param(("schema", "-o", "a.json"), "a.json", marks=pytest.mark.full),
        (("new", "mine", "--yes"), "mine.yaml"),
    ],
)
def test_a_disk_that_gets_full(tmp_path, again, arguments, name):
    process = begun(*arguments, cwd=tmp_path, preexec_fn=small_files(2000))
    code, out, err = ended(process)
    assert (code, out, err.count("\n")) == (5, "", 1), err
    assert name in err
    assert err.endswith(": File too large\n")
    assert left_in(tmp_path) == []
    assert again(*arguments).code == 0
    assert (tmp_path / name).exists()


TINY = ("--dim", "32", "--vocabulary", "300", "--no-check")


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("arguments", "most", "message", "left"),
    [
        (("model", "deltanet", "--blocks", "1", *TINY, "-o", "m"),
         30_000, "cannot write {}/m: File too large", []),
        (("train", "deltanet", "--task", "mqar", "--rung", "tiny", "--run", "r", "--steps", "4"),
         20_000, "r/checkpoint.pt: File too large", ["r", "r/mnemic-run.json"]),
    ],
)  # fmt: skip
def test_a_disk_that_gets_full_under_tensors(
    tmp_path, monkeypatch, mnemic, arguments, most, message, left
):
    """Torch and safetensors tell of it in errors of their own."""
    process = begun(*arguments, cwd=tmp_path, preexec_fn=small_files(most))
    code, _, err = ended(process)
    assert (code, err.splitlines()[-1]) == (5, f"mnemic: {message.format(tmp_path)}"), err
    assert "Traceback" not in err
    assert left_in(tmp_path) == left
    monkeypatch.chdir(tmp_path)
    done = mnemic(*arguments, *(["--resume"] if arguments[0] == "train" else []))
    assert done.code == 0, done.err


@pytest.mark.full
def test_a_disk_that_gets_full_under_a_run_on_text(tmp_path):
    (tmp_path / "book.txt").write_text("a book that is a short one\n" * 300)
    arguments = ("train", "deltanet", "--data", "book.txt", "--dim", "32", "--layers", "1",
                 "--length", "16", "--batch", "2", "--steps", "3", "--run", "r")  # fmt: skip
    code, _, err = ended(begun(*arguments, cwd=tmp_path, preexec_fn=small_files(30_000)))
    assert (code, "Traceback" in err) == (5, False), err
    assert err.splitlines()[-1].startswith("mnemic: cannot write r: ")
    assert ended(begun(*arguments, "--resume", cwd=tmp_path))[0] == 0


def test_a_full_disk_keeps_what_was_there(tmp_path, again):
    """An older folder, and an older file, are replaced whole or not at all."""
    for arguments in (("compile", "dot", "-o", "d"), ("schema", "-o", "a.json")):
        assert again(*arguments).code == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for arguments in (("compile", "deltanet", "-o", "d"), ("schema", "--space", "-o", "a.json")):
        process = begun(*arguments, cwd=tmp_path, preexec_fn=small_files(2000))
        assert ended(process)[0] == 5
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.some(1)
@pytest.mark.parametrize("home", [
    None, *(pytest.param(home, marks=pytest.mark.full) for home in ("/proc/nowhere", "/dev/null")),
    "read-only",
])  # fmt: skip
def test_a_home_that_cannot_be_written(tmp_path, home):
    """What is only remembered is done without; what needs a folder says which, and what to do."""
    names = ("HOME", "XDG_CACHE_HOME", "MNEMIC_CACHE")
    told = {name: value for name, value in os.environ.items() if name not in names}
    told |= {"PYTHONDONTWRITEBYTECODE": "1"}
    if home == "read-only":
        (tmp_path / home).mkdir(mode=0o555)
        told["HOME"] = str(tmp_path / home)
    elif home is not None:
        told["HOME"] = home

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "mnemic", *arguments], env=told, cwd=tmp_path, check=False,
            capture_output=True, text=True, preexec_fn=bound_by_modes,
        )  # fmt: skip

    if home is None:  # the system's own record tells one then; only nothing may go wrong
        assert run("check", "dot").returncode == 0
        return
    assert run("check", "dot").returncode == 0
    done = run("compile", "dot")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (5, "", 1), done.stderr
    assert done.stderr.endswith("; set MNEMIC_CACHE to a folder that can be written\n")
    told["MNEMIC_CACHE"] = str(tmp_path / "cache")
    assert run("compile", "dot").returncode == 0


@pytest.mark.full
def test_a_locale_without_utf8(tmp_path):
    """Files are UTF-8 whatever the locale says; signs that a terminal lacks are spelled."""
    ascii_ = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    (tmp_path / "mine.yaml").write_text("mnemic: 1\nname: mine\ntitle: Größe φ\nbias: dot\n",
                                        encoding="utf-8")  # fmt: skip
    for arguments in (("derive", "mine.yaml", "--words"), ("compile", "mine.yaml", "-o", "d"),
                      ("new", "other", "--yes")):  # fmt: skip
        code, out, err = ended(begun(*arguments, environment=ascii_, cwd=tmp_path))
        assert (code, err) == (0, ""), arguments
        assert out.isascii()
        if arguments[0] == "derive":
            assert "mine (Grosse phi), in words" in out
            assert "W_t = W_(t-1) - " in out
            assert "?" not in out
    assert "title: Größe φ" in (tmp_path / "d" / "spec.yaml").read_text(encoding="utf-8")
    assert "φ, what a key" in (tmp_path / "other.yaml").read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "d", "verify", "--help"], cwd=tmp_path, capture_output=True,
        text=True, check=False, env={**os.environ, **ascii_, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_working_folder_that_is_gone(tmp_path, warm):
    """What needs none works; what needs one says so."""
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"cd {gone} && rm -rf {gone} && {sys.executable} -m mnemic "
    environment = {**os.environ, **warm, "PYTHONPATH": str(ROOT)}
    for arguments, code, message in (
        ("check deltanet", 0, ""),
        (f"compile deltanet -o {tmp_path / 'd'}", 0, ""),
        ("compile deltanet -o d", 5, "mnemic: the working folder is gone: change to one that "
                                     "exists\n"),
        ("new mine --yes", 5, "mnemic: the working folder is gone: change to one that exists\n"),
    ):  # fmt: skip
        done = subprocess.run(["bash", "-c", script + arguments], capture_output=True, text=True,
                              check=False, env=environment)  # fmt: skip
        gone.mkdir(exist_ok=True)
        assert (done.returncode, done.stderr) == (code, message), arguments


BACK = """
import os, sys, time
real, hour = time.time, 0
def back():
    global hour
    hour += 3600
    return real() - hour
time.time = back
from mnemic.cli import main
main()
"""


@pytest.mark.full
def test_a_clock_that_goes_back(tmp_path, cold):
    """By an hour at every look: the cache is found, and a run's seconds are those that passed."""
    old = 4e9  # as written before the clock went back: in the future
    for path in Path(cold["MNEMIC_CACHE"]).rglob("*"):
        os.utime(path, (old, old))
    before = left_in(Path(cold["MNEMIC_CACHE"]))
    told = {**os.environ, **cold, "PYTHONDONTWRITEBYTECODE": "1"}
    train = "train deltanet --task mqar --rung tiny --run run --time-limit 100 --steps "
    for arguments in ("compile deltanet", train + "2", train + "4 --resume"):
        done = subprocess.run([sys.executable, "-c", BACK, *arguments.split()], cwd=tmp_path,
                              env=told, capture_output=True, text=True, check=False)  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert left_in(Path(cold["MNEMIC_CACHE"])) == before
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["steps"] == 4
    assert 0 < result["seconds"] < 100


def test_two_processes_that_compile_the_same_spec(tmp_path):
    """Both are done; one of them compiles, and what is there is whole."""
    told = {"MNEMIC_CACHE": str(tmp_path)}
    several = [begun("compile", "dot", "--json", environment=told) for _ in range(2)]
    done = [ended(process) for process in several]
    assert [(code, err) for code, _, err in done] == [(0, "")] * 2
    (folder,) = {json.loads(out)["folder"] for _, out, _ in done}
    assert package.read(Path(folder))
    assert not [name for name in left_in(tmp_path) if Path(name).name.startswith(".")]


def test_several_that_write_one_folder(tmp_path):
    """Each replaces the folder of the one before: none stumbles over another."""
    files = [{f"{i}.py": f"X = {i}\n" * 50, "a.py": f"Y = {i}\n"} for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        written = [pool.submit(package.write, files[i % 4], tmp_path / "d") for i in range(40)]
        assert {future.result() for future in written} == {tmp_path / "d"}
    assert package.read(tmp_path / "d") in files
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


@pytest.mark.parametrize("mode", first_only([0o000, 0o555], 0o555))
def test_a_cache_of_somebody_elses(tmp_path, cold, mode):
    """A cache that may not be read, or may not be written: a spec that it lacks and one it has."""
    cache = tmp_path / "cache"
    paths = [cache, *cache.rglob("*")]
    for path in reversed(paths):
        path.chmod(mode)
    bound = {"environment": cold | {"PYTHONDONTWRITEBYTECODE": "1"}, "preexec_fn": bound_by_modes}
    try:
        checked = ended(begun("check", "deltanet", **bound))
        whole = ended(begun("compile", "batch-gd", **bound))
        aside = ended(begun("compile", "dot", "-o", tmp_path / "d", **bound))
    finally:
        for path in paths:
            path.chmod(0o755)
    assert (checked[0], checked[2]) == (0, "")
    assert (whole[0], whole[2].count("\n")) == (5, 1), whole[2]
    assert "set MNEMIC_CACHE to a folder that can be written" in whole[2]
    assert (aside[0], aside[2]) == (0, "")
    assert ended(begun("compile", "dot", environment=cold))[0] == 0


@pytest.mark.parametrize("share", first_only([0.0, 0.5], 0.5))
def test_cache_files_that_are_cut(tmp_path, cold, share):
    """Every file of the cache is cut: what it held is made again."""
    cache = tmp_path / "cache"
    for path in [p for p in cache.rglob("*") if p.is_file() and p.suffix in (".py", ".json")]:
        whole = path.read_bytes()
        path.write_bytes(whole[: int(share * len(whole))])
    for arguments in (("compile", "dot"), ("check", "dot")):
        code, _, err = ended(begun(*arguments, environment=cold))
        assert (code, err) == (0, "")
    found = [p.parent for p in cache.glob("*/*/dot.py") if not p.parent.suffix]
    assert found
    assert all(map(package.read, found))


def test_a_file_is_replaced_only_where_it_is_one(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="there: not a plain file"), replacing(tmp_path / "there"):
        raise AssertionError("nothing is to be written")
    with pytest.raises(UsageError, match="not a plain file"), replacing(Path("/dev/null")):
        raise AssertionError("nothing is to be written")
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with replacing(tmp_path / "link") as beside:
        beside.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_refusal_names_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "nowhere" / "a.txt"
    with pytest.raises(FileNotFoundError) as caught, replacing(path) as beside:
        beside.write_text("x")
    assert caught.value.filename == str(path)
