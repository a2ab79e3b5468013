"""Every spec: its forms against each other and against the interpreter, in every precision."""

import pytest
import torch
from conformance import (
    Sizes,
    agree,
    as_interpreted,
    available,
    chunked,
    close,
    compiled,
    error,
    errors,
    gradients,
    inputs,
    interpreted,
    run,
    start,
    weighed,
)  # fmt: skip

from mnemic.compiler.rule import Moments

FLOORS = {torch.float32: 2e-6, torch.bfloat16: 2e-3, torch.float16: 3e-4}
"""What counts as no error at all: a few roundings of the dtype."""

FACTORS = {torch.float32: 10.0, torch.bfloat16: 1.1, torch.float16: 1.1}
"""How much larger an error than the recurrent form's is allowed."""


@pytest.mark.parametrize("tokens", ["1", "C-1", "C", "C+1", "31"])
@pytest.mark.parametrize("chunk", [4, 8, 16])
@pytest.mark.parametrize("name", chunked())
def test_chunk_is_recurrent(name: str, chunk: int, tokens: str) -> None:
    case = compiled(name)
    size = case.period if case.period > 1 else chunk
    length = {"1": 1, "C-1": size - 1, "C": size, "C+1": size + 1, "31": 31}[tokens]
    arguments = inputs(case, length, seed=length)
    agree(run(case, arguments, "chunk", chunk_size=chunk), run(case, arguments, "recurrent"))


@pytest.mark.few
@pytest.mark.parametrize("chunk", [None, 5, 8])
@pytest.mark.parametrize("name", chunked())
def test_chunk_is_recurrent_from_a_state(name: str, chunk: int | None) -> None:
    case = compiled(name)
    arguments = inputs(case, 19, seed=3)
    state = start(case, arguments)
    found = run(case, arguments, "chunk", chunk_size=chunk, state=state)
    agree(found, run(case, arguments, "recurrent", state=state))


@pytest.mark.parametrize("name", available())
def test_recurrent_is_the_interpreted_rule(name: str) -> None:
    case = compiled(name)
    arguments = {n: x.requires_grad_() for n, x in inputs(case, 13, seed=5).items()}
    out, final = case.operator(**arguments, form="recurrent", output_final_state=True)
    expected, state = interpreted(case, arguments)
    assert error(out, expected) <= 1e-9
    states = as_interpreted(final)
    close(states, {n: state[n] for n in states})
    found = gradients(weighed(out), arguments, case)
    close(found, gradients(weighed(expected), arguments, case))


@pytest.mark.few
@pytest.mark.parametrize("name", available())
def test_grouped_heads_are_the_interpreted_rule(name: str) -> None:
    case = compiled(name)
    arguments = inputs(case, 9, seed=6, sizes=Sizes(groups=2))
    expected, _ = interpreted(case, arguments)
    for form in case.forms:
        assert error(case.operator(**arguments, form=form)[0], expected) <= 1e-9


@pytest.mark.few
@pytest.mark.parametrize("dtype", FLOORS, ids=str)
@pytest.mark.parametrize("name", chunked())
def test_rounding_of_the_chunk_form(name: str, dtype: torch.dtype) -> None:
    """The chunk form is off by about what the recurrence is; where that is right by luck, by no
    more than half of what the rule itself moves by when its vectors move by one rounding."""
    case = compiled(name)
    rounded = inputs(case, 37, seed=7, dtype=dtype)
    exact = run(case, {n: x.double() for n, x in rounded.items()}, "recurrent")
    plain = errors(run(case, rounded, "recurrent"), exact)
    chunk = 16 if not isinstance(case.rule, Moments) else 4  # no longer than d_k: see parallel.md
    found = errors(run(case, rounded, "chunk", chunk_size=chunk), exact)
    allowed = {n: FACTORS[dtype] * e + FLOORS[dtype] for n, e in plain.items()}
    wrong = {n: (e, allowed[n]) for n, e in found.items() if not e <= allowed[n]}
    if wrong:
        moved = errors(run(case, _moved(rounded), "recurrent"), exact)
        wrong = {n: (e, moved[n]) for n, (e, _) in wrong.items() if not e <= moved[n] / 2}
    assert not wrong, wrong


def _moved(rounded: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The arguments in float64, keys, queries and values off by one rounding, up or down."""
    found = {n: x.double() for n, x in rounded.items()}
    generator = torch.Generator().manual_seed(1)
    for n in ("q", "k", "v"):
        signs = torch.randint(0, 2, found[n].shape, generator=generator) * 2 - 1
        found[n] = found[n] * (1 + torch.finfo(rounded[n].dtype).eps / 2 * signs)
    return found
