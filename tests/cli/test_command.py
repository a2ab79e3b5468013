"""The command as a whole: help, version, completion, pipes, plain output, doctor, bench."""

import inspect
import os
import subprocess
import sys
from importlib.metadata import version

import pytest

import mnemic as package
from mnemic.cli.app import EXAMPLES
from mnemic.cli.bench import bench

ESCAPE = "\x1b"


def test_version(mnemic):
    assert mnemic("--version").out == f"mnemic {version('mnemic')}\n"
    assert package.__version__ == version("mnemic")
    assert "__version__" in dir(package)


@pytest.mark.parametrize("command", [c.__name__.removesuffix("_") for c in EXAMPLES])
def test_help_shows_an_example(mnemic, command):
    done = mnemic(command, "--help")
    assert done.code == 0
    assert "Examples:" in done.out
    assert f"mnemic {command}" in done.out.split("Examples:")[1]


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda c: c.__name__.removesuffix("_"))
def test_help_leaves_nothing_of_a_docstring_out(mnemic, command):
    """Brackets are brackets, though a terminal's library reads some of them as markup."""
    done = mnemic(command.__name__.removesuffix("_"), "--help")
    shown = "".join(done.out.split())
    assert "".join(inspect.getdoc(command).split()) in shown
    assert "[[" not in done.out.split("Arguments")[0].split("Usage:")[1].splitlines()[0]


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda c: c.__name__.removesuffix("_"))
def test_defaults_are_within_the_bounds_of_their_options(command):
    """What an option is where it is left out may be given, too."""
    for name, one in inspect.signature(command).parameters.items():
        for told in getattr(one.annotation, "__metadata__", ()):
            low, high, given = told.min, told.max, one.default
            if isinstance(given, int | float) and not isinstance(given, bool):
                assert low is None or given >= low, name
                assert high is None or given <= high, name


def test_help_lists_every_command_and_completion(mnemic):
    done = mnemic("--help")
    assert done.code == 0
    for command in EXAMPLES:
        assert f" {command.__name__.removesuffix('_')} " in done.out
    assert "--install-completion" in done.out
    assert "--show-completion" in done.out


def test_an_unknown_command_and_an_unknown_option(mnemic):
    assert mnemic("chek").code == 2
    assert mnemic("check", "deltanet", "--jsn").code == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("train", "deltanet", "--lr", "abc"), "'--lr': must be a valid number: read 'abc'"),
        (("train", "deltanet", "--steps=2.5"), "'--steps': must be a valid integer: read '2.5'"),
        (("search", "x.yaml", "--jobs", "0"), "must be greater than or equal to 1: read '0'"),
    ],
)
def test_a_wrong_value_of_an_option_is_told_with_what_was_read(mnemic, given, told):
    done = mnemic(*given)
    assert done.code == 2
    assert told in " ".join(done.err.replace("│", " ").split())


def test_no_arguments_show_what_to_try_first(mnemic):
    done = mnemic()
    assert (done.code, done.err) == (2, "")
    assert "What to try first:" in done.out
    assert "Usage: mnemic COMMAND" in done.out


def test_names_are_completed(shell):
    words = {"COMP_WORDS": "mnemic check gated-delt", "COMP_CWORD": "2"}
    done = shell(environment={"_MNEMIC_COMPLETE": "complete_bash", **words})
    assert set(done.out.split()) == {"gated-deltanet", "gated-deltaproduct"}


def test_output_is_plain_where_no_terminal_is(shell):
    for arguments in (("list", "--family", "affine"), ("check", "deltanet"), ("check", "nope")):
        done = shell(*arguments)
        assert ESCAPE not in done.out + done.err


def test_a_reader_that_leaves_is_no_error():
    command = f"{sys.executable} -m mnemic schema | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.strip() in {"0", "141"}


def test_another_end_that_leaves_ends_nothing():
    """As the client of a server does, or a process that works for this one."""
    code = """
import os
from mnemic.cli.ending import ended_in_one_line
with ended_in_one_line():
    end, start = os.pipe()
    os.close(end)
    try:
        os.write(start, b"x")
    except BrokenPipeError:
        print("told")
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "told\n", "")


def test_any_encoding(shell):
    done = shell("derive", "deltanet", environment={"PYTHONIOENCODING": "ascii"})
    assert (done.code, done.err) == (0, "")


def test_doctor(mnemic):
    done = mnemic("doctor", "--json")
    assert done.code == 0
    assert done.json["ok"] is True
    names = [check["name"] for check in done.json["checks"]]
    assert names == [
        "python", "mnemic", "sympy", "torch", "device", "triton", "extras", "compiler", "cache",
        "specs",
    ]  # fmt: skip
    assert mnemic("doctor").out.startswith("python     ok      ")


def test_doctor_finds_a_cache_that_cannot_be_written(mnemic, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MNEMIC_CACHE", str(tmp_path / "file"))
    done = mnemic("doctor")
    assert done.code == 5
    assert f"cache      FAILED  {tmp_path / 'file'}: File exists; set MNEMIC_CACHE" in done.out


def test_bench_of_a_spec(mnemic, monkeypatch):
    from mnemic.bench import forms
    from mnemic.compiler.oracle.samples import Sizes

    monkeypatch.setattr(forms, "SIZES", Sizes(1, 32, 1, 8, 8))
    done = mnemic("bench", "deltanet", "elastic-net", "--json")
    assert done.code == 0
    assert done.json.keys() == {"setting", "figures", "notes"}
    assert [f["what"] for f in done.json["figures"]] == [
        "deltanet, chunk over token by token, forward",
        "deltanet, chunk over token by token, forward+backward",
    ]
    assert all(f["value"] > 0 and f["unit"] == "x" for f in done.json["figures"])
    assert done.json["notes"][0].startswith("elastic-net has no chunk form: ")


def test_bench_of_nothing(mnemic):
    done = mnemic("bench", "deltanett")
    assert (done.code, bench.__name__) == (2, "bench")
    assert done.err == "mnemic: no packaged spec is called 'deltanett'; did you mean 'deltanet'?\n"


def test_the_script_is_installed():
    script = os.path.join(os.path.dirname(sys.executable), "mnemic")
    if not os.path.exists(script):
        pytest.skip("mnemic is not installed here")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("mnemic ")
