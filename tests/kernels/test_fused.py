"""The fused form of one spec a class in Triton's interpreter, under the contract of verification.

Float64, and 16 bits with products as a device makes them, against the recurrence in float64:
outputs, states and every gradient, at lengths around a chunk, with strong decay, from a state,
packed, and as views; every buffer is poisoned with NaN and guarded. ``mnemic verify SPEC`` does the
same for any spec.
"""

import pytest
from classes import KINDS, representative

from mnemic import pipeline


def verified(folder: str) -> list[str]:
    from mnemic.kernels.verifying import lines, verify_folder

    found = list(lines(verify_folder(folder, "", "cpu", None)))
    forms = {line.form.removesuffix(" (interpreted)") for line in found}
    assert forms - {"step"} == {"triton"}
    assert {line.dtype for line in found} == {"float64", "bfloat16", "float16"}
    return [f"{line.dtype}: {text}" for line in found for text in line.wrong]


@pytest.mark.parametrize("kind", KINDS)
def test_a_spec_of_each_class(interpreter, kind: str) -> None:
    name = representative(kind)
    assert interpreter(verified, folder=str(pipeline.compile(name).folder)) == []
