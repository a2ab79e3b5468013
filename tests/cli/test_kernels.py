"""``mnemic kernels`` and ``mnemic verify``."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mnemic.kernels import build


@pytest.mark.full
def test_verify_says_what_was_checked(shell: Callable[..., Any], tmp_path: Path) -> None:
    done = shell("verify", "linear-attention", "-o", tmp_path / "layer", "--json")
    assert done.code == 0, done.err
    told = done.json
    assert told["passed"]
    assert told["name"] == "linear-attention"
    assert len(told["entries"][0]["hash"]) == 64
    chunk = told["entries"][0]["forms"]["chunk"]
    assert all(found["passed"] for found in chunk.values())
    assert (tmp_path / "layer" / "verified.json").is_file()


@pytest.mark.full
def test_verify_says_what_it_does_and_stops_in_time(
    shell: Callable[..., Any], tmp_path: Path
) -> None:
    """An implicit step is a root in every sweep, which takes minutes in Triton's interpreter."""
    spec = tmp_path / "root.yaml"
    spec.write_text(
        "{mnemic: 1, name: root, bias: {expr: log(cosh(e))}, retention: {decay: token}, "
        "optimizer: {method: implicit, rate: token}}"
    )
    begun = time.monotonic()
    done = shell("verify", spec, "--seconds", "0.001")
    assert done.code == 0, done.err
    assert time.monotonic() - begun < 60
    assert "mnemic: verifying root: float32, T = 1 (1 of 39, 0 s)" in done.err
    assert "mnemic: verifying root (interpreted): float64, T = 1 (1 of 43, 0 s)" in done.err
    late = next(line for line in done.out.splitlines() if line.startswith("no time for"))
    assert late.endswith("(--seconds 0 tries all)")
    assert "float16, documents" in late


@pytest.mark.full
def test_without_a_gpu_there_is_nothing_to_tune(shell: Callable[..., Any], tmp_path: Path) -> None:
    done = shell("tune", "linear-attention", "-o", tmp_path / "layer", "--width", 128, "--json")
    assert done.code == 0, done.err
    told = done.json
    assert told["shape"] == "B = 8, T = 4096, H = 16, d_k = 128, d_v = 128, bfloat16"
    assert told["note"].startswith("no GPU here: there is nothing to time")
    assert told["tuned"] == []
    command = [sys.executable, str(tmp_path / "layer"), "tune", "--batch", "1", "--for", "decode"]
    alone = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout.splitlines() == [
        "linear-attention: B = 1, T = 4096, H = 16, d_k = 64, d_v = 64, bfloat16", told["note"],
    ]  # fmt: skip


def test_a_rule_without_kernels_has_nothing_to_tune(mnemic: Callable[..., Any]) -> None:
    done = mnemic("tune", "gsa")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "this rule has no fused form"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--dtype", "int8"), "dtype: read 'int8', allowed: bfloat16, float16, float32"),
        (("--for", "speed"), "for: read 'speed', allowed: forward, training, decode"),
    ],
)
def test_what_cannot_be_tuned(
    mnemic: Callable[..., Any], options: tuple[str, ...], told: str
) -> None:  # fmt: skip
    done = mnemic("tune", "gla", *options)
    assert done.code == 2
    assert done.err.splitlines()[-1] == f"mnemic: {told}"


@pytest.mark.full
def test_a_folder_verifies_itself(shell: Callable[..., Any], tmp_path: Path) -> None:
    assert shell("compile", "linear-attention", "-o", tmp_path / "layer").code == 0
    command = [sys.executable, str(tmp_path / "layer"), "verify"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "chunk float32: passed" in done.stdout.splitlines()
    assert (tmp_path / "layer" / "verified.json").is_file()


def compiling_to(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]) -> None:
    """Every job comes out as told, without being compiled."""

    def each(asked: Any, function: str, workers: Any, told: Any) -> Any:
        yield from ((job, found) for job in asked)

    monkeypatch.setattr(build, "_each", each)


def one_pass(**changed: Any) -> dict[str, Any]:
    """What a job gives whose only pass has no kernel."""
    step = {"kernels": [], "bytes": {}, "error": None, "refused": None, **changed}
    return {"missing": None, "passes": {"forward": step}}


CRASHED = {"missing": "compile_folder: KeyError: 'z'", "passes": {}, "failed": True}


@pytest.mark.parametrize(
    ("found", "told", "message"),
    [
        (one_pass(error="CompilationError: NameError('a')"), "1 passes failed, 0 refuse",
         "linear-attention d = 16 forward: CompilationError: NameError('a')"),
        (CRASHED, "0 passes failed, 1 specs failed as a whole, 0 refuse",
         "linear-attention d = 16: compile_folder: KeyError: 'z'"),
    ],
)  # fmt: skip
def test_a_pass_that_fails_is_a_failure(
    mnemic: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], told: str,
    message: str,
) -> None:  # fmt: skip
    compiling_to(monkeypatch, found)
    done = mnemic("kernels", "linear-attention", "--width", 16)
    assert done.code == 4
    assert told in done.out
    assert done.out.rstrip().endswith("0 specs without a fused form")
    assert done.err.splitlines()[-1].endswith(f"1 not as they should be: {message}")
    plain = mnemic("kernels", "linear-attention", "--width", 16, "--json")
    assert plain.code == 4
    (kernel,) = plain.json["kernels"]
    assert {n: kernel[n] for n in ("missing", "passes")} == {
        n: found[n] for n in ("missing", "passes")
    }


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (one_pass(refused="too wide"), "0 passes failed, 1 refuse the size"),
        ({"missing": "no fused form", "passes": {}}, "1 specs without a fused form"),
    ],
)
def test_what_is_refused_is_no_failure(
    mnemic: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], told: str
) -> None:
    compiling_to(monkeypatch, found)
    done = mnemic("kernels", "linear-attention", "--width", 16, "--check")
    assert done.code == 0, done.err
    assert told in done.out


SIMULATED = {
    "name": "chunk_scan", "constants": {"C": 64, "BV": 64}, "num_warps": 4, "num_stages": 2,
    "resources": {"registers": 200, "shared": 5000, "tensor": {}, "spill_stores": 0,
                  "spill_loads": 0, "local_loads": 0, "local_stores": 0},
    "blocks": 2, "troubles": [],
    "cycles": {"whole": False, "rows": 64, "programs": 2, "beside": 2, "instructions": 400,
               "barriers": 9, "alone": 2000.0, "full": 3000.4, "more": None,
               "waits": {"barriers": 0.25}, "of_rows": 3000.4},
}  # fmt: skip


def test_cycles_are_columns_of_a_table_of_their_own(
    mnemic: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiling_to(monkeypatch, one_pass(kernels=[SIMULATED]))
    file = tmp_path / "cycles.md"
    given = ("kernels", "linear-attention", "--width", 128, "--stalls", "-o", file)
    assert mnemic(*given).code == 0
    text = file.read_text()
    assert text.startswith("# Cycles of kernels compiled for sm_90\n")
    assert "| 2 | turn | 64 | 2 | 3000 | 2000 |  | 3000 | 9 | 25 % barriers |  |" in text
    assert "| linear-attention | forward | 8 x 4096 x 32, 128 | chunk_scan 512 / 1.9 / " in text
    again = mnemic(*given)
    assert "1 specs and sizes as they were in the table" in again.out
    assert file.read_text() == text
    other = mnemic("kernels", "linear-attention", "--width", 128, "-o", file)
    assert other.code == 2
    assert "begins with '# Cycles of kernels compiled for sm_90'" in other.err


@pytest.mark.parametrize(("options", "told"), [
    (("--count",), "kernels: read --count with --stalls, allowed: one of them"),
    (("--target", "sm_100"), "stalls: read target 'sm_100', allowed: sm_80, sm_90"),
])  # fmt: skip
def test_what_is_not_simulated(
    mnemic: Callable[..., Any], options: tuple[str, ...], told: str
) -> None:
    done = mnemic("kernels", "gla", "--stalls", *options)
    assert done.code == 2
    assert done.err.splitlines()[-1] == f"mnemic: {told}"


def test_a_target_that_is_not_known(mnemic: Callable[..., Any]) -> None:
    done = mnemic("kernels", "gla", "--target", "sm_7")
    assert done.code == 2
    allowed = "sm_80, sm_90, sm_100, sm_120"
    assert done.err.splitlines()[-1] == f"mnemic: target: read 'sm_7', allowed: {allowed}"
