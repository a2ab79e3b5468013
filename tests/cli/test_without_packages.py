"""Without Triton, without matplotlib, without any extra: the rest works, and what needs one says
so in one line."""

import os
from pathlib import Path

import pytest
from faulty import begun, ended
from tiers import first_only

BLOCKED = Path(__file__).with_name("blocked")
TRAIN = ("train", "deltanet", "--task", "memorisation", "--rung", "tiny", "--steps", "2")


def run(package, *arguments, cwd):
    """Run the command where a package is not installed."""
    paths = os.pathsep.join([str(BLOCKED), str(Path(__file__).parents[2])])
    told = {"BLOCKED": package, "PYTHONPATH": paths}
    return ended(begun(*arguments, environment=told, cwd=cwd))


CHECK = ("check", "deltanet", "--derive")


@pytest.mark.parametrize(
    ("package", "arguments"),
    first_only(
        [(package, told) for package in ("triton", "matplotlib") for told in (CHECK, TRAIN)],
        ("triton", CHECK), ("matplotlib", TRAIN),
    ),
)  # fmt: skip
def test_the_rest_works(tmp_path, package, arguments):
    code, _, err = run(package, *arguments, cwd=tmp_path)
    assert code == 0, err
    assert "Traceback" not in err
    if arguments is TRAIN:
        names = {path.name for path in (tmp_path / "runs").rglob("*")}
        assert {"result.json", "curve.csv"} <= names
        assert ("curve.png" in names) == (package != "matplotlib")


KEPT = str(Path(__file__).parents[2] / "examples" / "search" / "recall")


def test_what_needs_matplotlib_says_so(tmp_path):
    code, out, err = run("matplotlib", "effects", KEPT, "-o", "e.md", cwd=tmp_path)
    assert (code, out) == (5, "")
    assert err == (
        "mnemic: matplotlib is not installed, and this command needs it: "
        "pip install 'mnemic[search]'\n"
    )
    assert not any(tmp_path.iterdir())


EXTRAS = (
    "scipy matplotlib optuna sqlalchemy alembic jinja2 triton transformers datasets tokenizers "
    "sphinx furo myst_parser latex2mathml onnx_ir onnxruntime onnxscript"
)


OTHERS = (
    pytest.param(("map",), "compare", marks=pytest.mark.full),
    pytest.param(("search", KEPT + ".yaml"), "search", marks=pytest.mark.full),
)
"""Others that need the same extras."""


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("audit", "deltanet"), "compare"),
        (("ablate", "deltanet", "--list"), "search"),
        (("kernels", "deltanet"), "kernels"),
        (("eval", KEPT, "--data", KEPT), "hf"),
        (("site", "-o", "site"), "docs"),
        (("export", KEPT), "onnx"),
        *OTHERS,
    ],
)
def test_a_command_names_its_extra(tmp_path, arguments, extra):
    code, out, err = run(EXTRAS, *arguments, cwd=tmp_path)
    assert (code, out) == (5, "")
    (line,) = err.splitlines()
    assert line.endswith(f"pip install 'mnemic[{extra}]'")
    assert not any(tmp_path.iterdir())


def test_a_picture_without_matplotlib_is_told_before_the_work(tmp_path):
    arguments = ("eval", KEPT, "--data", KEPT, "--picture", "seen.png")
    code, out, err = run("matplotlib", *arguments, cwd=tmp_path)
    assert (code, out) == (5, "")
    assert err.endswith("pip install 'mnemic[compare]'\n")


@pytest.mark.full
def test_verify_without_triton_tries_the_rest(tmp_path):
    code, out, err = run("triton", "verify", "deltanet", "--seconds", "1", cwd=tmp_path)
    assert code == 0, err
    assert "chunk  float32   passed" in out
    assert "Triton is not installed, so the fused kernels were not tried" in out


@pytest.mark.full
def test_doctor_tells_that_a_c_compiler_is_missing(tmp_path):
    code, out, _ = ended(begun("doctor", environment={"PATH": str(tmp_path), "CC": ""},
                               cwd=tmp_path))  # fmt: skip
    assert code == 0
    needing = "Triton on a GPU and --compile on a CPU need one"
    assert f"compiler   -       no gcc, cc or clang; only {needing}" in out


@pytest.mark.full
def test_the_rest_works_without_a_c_compiler(tmp_path):
    only = {"PATH": str(tmp_path), "CC": ""}
    code, _, err = ended(begun(*TRAIN, environment=only, cwd=tmp_path))
    assert (code, "Traceback" in err) == (0, False)
    left = {path.name for path in (tmp_path / "runs").rglob("*")}
    assert "curve.png" in left  # and without a display


@pytest.mark.full
def test_a_search_misses_matplotlib_before_it_trains(tmp_path):
    space = Path(__file__).parents[2] / "examples" / "search" / "small.yaml"
    code, _, err = run("matplotlib", "search", str(space), cwd=tmp_path)
    assert code == 5
    assert err.startswith("mnemic: matplotlib is not installed")
    assert not any(tmp_path.iterdir())


def test_doctor_tells_that_triton_is_missing(tmp_path):
    code, out, _ = run("triton", "doctor", cwd=tmp_path)
    assert code == 0
    assert "triton     -       not installed; the forms in PyTorch run without it" in out
    assert "kernels (triton)" in out
