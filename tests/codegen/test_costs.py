"""Costs that a derivation prints, against what the compiled operators carry and multiply."""

import pytest
import torch
from conformance import Case, Sizes, available, chunked, compiled, having, inputs
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from mnemic.codegen.package import load
from mnemic.codegen.support.sizes import eval_size
from mnemic.compiler.derive import derive_spec as compiled_rule
from mnemic.compiler.explain.cost import cost
from mnemic.compiler.explain.cost_hybrids import layer_cost
from mnemic.dsl.load import load as load_spec
from mnemic.pipeline import compile as compile_spec

FLAGS = {"position", "live_tail"}
"""Counters of tokens, which the printed state leaves out."""

LAYERED = [name for name in chunked() if name in having("layered")]


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


@pytest.mark.some(10)
@pytest.mark.parametrize("name", LAYERED)
def test_flops_of_the_chunk_form_are_those_that_it_takes(name: str) -> None:
    case, size = compiled(name), 16
    tokens = 4 * case.period if case.period >= 16 else 64
    with FlopCounterMode(display=False) as counter:
        called(case, "chunk", Sizes(1, tokens, 1, size, size))
    told = cost(case.rule).evaluate(d_k=size, d_v=size, T=tokens)["train_flops"]
    assert counter.get_total_flops() / tokens == pytest.approx(told, rel=0.15)


HYBRIDS = tuple(n for n in available() if n not in having("hybrid none"))


@pytest.mark.some(3)
@pytest.mark.parametrize("name", HYBRIDS)
def test_a_hybrid_carries_what_is_told(name: str) -> None:
    """All of a layer's state but the convolutions' tails and counters, of one head."""
    block = {"heads": 1, "convolution": 0, "attention_window": 5, "segment": 8, "persistent": 3}
    kind = load_spec(name).block.hybrid
    del block["segment" if kind != "context" else "attention_window"]
    spec = load_spec({"name": "mine", "extends": name, "block": block})
    layer = load(compile_spec(spec).folder).Layer(4).double()
    x = torch.randn(1, 20, 4, dtype=torch.float64)
    _, state = layer(x, output_state=True)
    counters = ("tokens", "position", "live_tail", "convolution")
    carried = sum(s.numel() for n, s in state.items() if n.rpartition(".")[2] not in counters)
    told = layer_cost(compiled_rule(spec)).evaluate(d_k=4, d_v=4, T=20)["state"]
    assert told == carried
