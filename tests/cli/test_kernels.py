"""``mnemic kernels`` and ``mnemic verify``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


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


def test_a_target_that_is_not_known(shell: Callable[..., Any]) -> None:
    done = shell("kernels", "gla", "--target", "sm_7")
    assert done.code == 2
    allowed = "sm_80, sm_90, sm_100, sm_120"
    assert done.err.splitlines()[-1] == f"mnemic: target: read 'sm_7', allowed: {allowed}"
