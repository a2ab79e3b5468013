"""Costs that a derivation prints, against what the compiled operators carry and multiply."""

import pytest
import torch
from conformance import Case, Sizes, available, chunked, compiled, inputs
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from mnemic.codegen.support.sizes import eval_size
from mnemic.compiler.explain.cost import cost

FLAGS = {"position", "live_tail"}
"""Counters of tokens, which the printed state leaves out."""

LAYERED = [name for name in chunked() if compiled(name).rule.layered]


def parameters(case: Case, key: int, value: int) -> dict[str, Tensor]:
    """Initial duals of the sizes that the spec's expansion gives."""
    sizes = {"v": value, "D": eval_size(case.signature.features, key)}
    sizes |= {name: int(size * value) for name, size in case.rule.network.widths}
    return {
        p.name: torch.randn(1, sizes[p.rows], sizes[p.columns], dtype=torch.float64)
        for p in case.signature.params
    }


def called(case: Case, form: str, sizes: Sizes) -> dict[str, Tensor]:
    """The states after a run of one head."""
    given = inputs(case, sizes.tokens, sizes=sizes)
    params = parameters(case, sizes.key, sizes.value)
    options = {"params": params} if params else {}
    states: dict[str, Tensor] = case.generated(
        **given, form=form, output_final_state=True, **options
    )[1]
    return states


@pytest.mark.parametrize("name", available())
def test_the_state_has_as_many_numbers_as_are_carried(name: str) -> None:
    case, tokens, size = compiled(name), 20, 4
    states = called(case, "recurrent", Sizes(1, tokens, 1, size, size))
    carried = sum(x.numel() for state, x in states.items() if state not in FLAGS)
    told = cost(case.rule).evaluate(d_k=size, d_v=size, T=tokens)["state"]
    assert told == pytest.approx(carried, rel=1e-12)


@pytest.mark.parametrize("name", LAYERED)
def test_flops_of_the_chunk_form_are_those_that_it_takes(name: str) -> None:
    case, size = compiled(name), 16
    tokens = 4 * case.period if case.period >= 16 else 64
    with FlopCounterMode(display=False) as counter:
        called(case, "chunk", Sizes(1, tokens, 1, size, size))
    told = cost(case.rule).evaluate(d_k=size, d_v=size, T=tokens)["train_flops"]
    assert counter.get_total_flops() / tokens == pytest.approx(told, rel=0.15)
