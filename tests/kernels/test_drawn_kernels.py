"""Fused kernels behind the first chunk and from carried states, as the fuzzer draws them.

``python tests/fuzz.py --kernels`` holds the same of specs that nobody wrote.
"""

import pytest

TOKEN = {"rate": "token"}
SPECS = {
    "a sum under a decay": {"bias": "dot", "retention": {"decay": "token"}, "optimizer": TOKEN},
    "rows of a kernel over their sums, a read-out before": {
        "bias": "dot", "features": {"kernel": "(1 + s)**2/4", "normalise": "row"},
        "retention": {"decay": "token"}, "optimizer": TOKEN, "readout": {"memory": "before"},
    },
}  # fmt: skip


def held(name: str) -> str:
    """What the fuzzer's check says of a spec."""
    from fuzz_kernels import kernels

    return kernels({"mnemic": 1, "name": "drawn", **SPECS[name]})


@pytest.mark.parametrize("name", SPECS)
def test_kernels_agree_from_a_state_over_several_chunks(interpreter, name: str) -> None:
    assert interpreter(held, name=name) == "kernels agree"


def told(name: str, fault: str) -> str:
    """What the check says of kernels that are right from a fresh start alone."""
    from dataclasses import replace

    import conformance

    right = conformance.run

    def run(case, arguments, pieces, **options):  # type: ignore[no-untyped-def]
        found = right(case, arguments, pieces, **options)
        if pieces == "recurrent" or not options.get("state"):
            return found
        wrong = {n: x + 1e-6 if n == fault else x for n, x in found.gradients.items()}
        return replace(found, gradients=wrong)

    conformance.run = run
    try:
        return held(name)
    except AssertionError as error:
        return str(error)
    finally:
        conformance.run = right


def test_a_gradient_that_is_wrong_behind_a_state_alone_is_seen(interpreter) -> None:
    found = interpreter(told, name="a sum under a decay", fault="log_alpha")
    assert found.startswith("{'gradient of log_alpha': ")
