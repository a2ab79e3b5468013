"""Which form a call runs, and what is refused: fused kernels only where they may be trusted."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from conformance import compiled, inputs

from mnemic.codegen.support import choice, verified, versions
from mnemic.codegen.support.arguments import ArgumentError

FORMS = ("recurrent", "chunk", "triton")


def signature() -> Any:
    """A rule that takes every form."""
    return compiled("gated-deltanet").signature


@dataclass(frozen=True)
class OnDevice:
    """Arguments on a device that is not here."""

    device: torch.device
    dtype: torch.dtype = torch.bfloat16


GPU: Any = OnDevice(torch.device("cuda"))
CPU: Any = OnDevice(torch.device("cpu"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine with a GPU where something is in the way, or not, and kernels passed, or not."""

    def set_up(why: str | None, passed: bool) -> None:
        versions.announced.cache_clear()
        monkeypatch.setattr(versions, "unusable", lambda device: why)
        monkeypatch.setattr(verified, "passed", lambda form, dtype, device: passed)

    return set_up


def test_verified_kernels_are_taken(machine: Callable[..., None]) -> None:
    machine(None, True)
    assert choice.form(signature(), "auto", FORMS, GPU) == "triton"
    assert choice.form(signature(), "chunk", FORMS, GPU) == "chunk"
    assert choice.form(signature(), "auto", FORMS[:2], GPU) == "auto"
    assert choice.form(signature(), "auto", FORMS, CPU) == "auto"


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (None, "no record says that they passed in torch.bfloat16 here (run mnemic verify)"),
        ("Triton 3.3.1 is too old: 3.6.0 or newer is needed", "Triton 3.3.1 is too old"),
    ],
)
def test_others_are_not_and_it_is_said_once(
    machine: Callable[..., None], why: str | None, told: str
) -> None:
    machine(why, why is not None)
    with pytest.warns(RuntimeWarning) as seen:
        assert choice.form(signature(), "auto", FORMS, GPU) == "auto"
    assert str(seen[0].message).startswith(
        f"gated-deltanet: its fused kernels are not used: {told}"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choice.form(signature(), "auto", FORMS, GPU) == "auto"


def test_what_cannot_run_is_refused_when_asked_for(machine: Callable[..., None]) -> None:
    machine("Triton is not installed", False)
    with pytest.raises(ArgumentError) as refused:
        choice.form(signature(), "triton", FORMS, CPU)
    assert str(refused.value) == (
        "gated-deltanet: form: read 'triton', but Triton is not installed; "
        "'auto' takes what runs here"
    )
    machine(None, False)
    assert choice.form(signature(), "triton", FORMS, GPU) == "triton"


def test_numbers_are_checked_in_debug_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    case = compiled("gated-deltanet")
    arguments = inputs(case, 5)
    above = {**arguments, "log_alpha": arguments["log_alpha"] + 0.5}
    unknown = {**arguments, "k": arguments["k"].clone()}
    unknown["k"][0, 0] = float("nan")
    case.generated(**above)
    monkeypatch.setenv("MNEMIC_DEBUG", "1")
    case.generated(**arguments)
    for wrong, told in ((above, r"log_alpha: read 0\.\d+, at most 0 is allowed"),
                        (unknown, "k: holds NaN")):  # fmt: skip
        with pytest.raises(ValueError, match=f"gated-deltanet: {told}"):
            case.generated(**wrong)
