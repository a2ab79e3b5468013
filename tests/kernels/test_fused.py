"""The fused form of one spec a class in Triton's interpreter, under the contract of verification.

Float64, and 16 bits with products as a device makes them, against the recurrence in float64:
outputs, states and every gradient, at lengths around a chunk, with strong decay, from a state,
packed, and as views; every buffer is poisoned with NaN and guarded. ``mnemic verify SPEC`` does the
same for any spec. The first tier makes every eighth trial, and so some in every dtype.
"""

import pytest
from classes import KINDS, representative

from mnemic import pipeline


def verified(folder: str, of: int) -> list[str]:
    """Make every so many-th trial; return what is wrong."""
    from pathlib import Path

    from mnemic.codegen import package
    from mnemic.kernels.verifying import lines

    module = package.load(Path(folder))
    verify = package.support(module, "verify")
    made = [verify.share(module.Layer, device="cpu", of=of)]
    found = list(lines(verify.recorded(module.Layer, made, device="cpu", keep=False)))
    forms = {line.form.removesuffix(" (interpreted)") for line in found}
    assert forms - {"step"} == {"triton"}
    assert {line.dtype for line in found} == {"float64", "bfloat16", "float16"}
    return [f"{line.dtype}: {text}" for line in found for text in line.wrong]


@pytest.mark.parametrize("kind", KINDS)
def test_a_spec_of_each_class(interpreter, kind: str) -> None:
    folder = pipeline.compile(representative(kind)).folder
    assert interpreter(verified, folder=str(folder), of=8) == []


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_every_trial_of_a_spec_of_each_class(interpreter, kind: str) -> None:
    folder = pipeline.compile(representative(kind)).folder
    assert interpreter(verified, folder=str(folder), of=1) == []
