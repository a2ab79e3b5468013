"""A model to a graph of ONNX: traced, converted, and given states to begin with."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import onnx_ir as ir
import torch
from torch import Tensor

from mnemic.export.linear_attention import StandardOperator, standing_in
from mnemic.export.refusals import one_refusal, refuse_growing, refuse_lacking
from mnemic.export.scan_constants import hoist_constants
from mnemic.export.standard_rules import Standard, standard
from mnemic.export.traced_model import (
    LOGITS,
    PRESENT,
    TOKENS,
    TracedModel,
    input_names,
    memories,
    states_after,
    states_before,
)
from mnemic.hf.build import specs_of
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.pipeline import derive

TRACED: Final = 9
"""Tokens of the sequence that is traced; the graph takes any number."""

_ROWS: Final = 2


@dataclass(frozen=True)
class Graphs:
    """The graphs of a model, and which memories are nodes of ``LinearAttention``.

    ``start`` maps the names of states to what they are before the first token, [1, …].
    """

    start: dict[str, Tensor]
    prefill: ir.Model
    step: ir.Model
    standard: dict[str, Standard]


def graphs_of(model: MnemicForCausalLM) -> Graphs:
    """Return graphs of a model, in float32: a sequence of any length, and one token.

    Both map ``input_ids`` [B, T] (T = 1 in a step) and the states ``past.<block>.<name>`` to
    ``logits`` [B, T, vocabulary] and ``present.<block>.<name>``. States may be of one row, which
    then is every row's.

    Raises:
        UsageError: a state that grows, or an operator that ONNX lacks; it says which.
    """
    tokens = torch.zeros(_ROWS, TRACED, dtype=torch.int64)
    layers = model.config.layers
    with one_refusal(layers):
        start, after = states_before(model), states_after(model, tokens[:1])
        states = states_after(model, tokens)
    refuse_growing(layers, start, after)
    names = tuple(tuple(own) for own in states)
    traced = TracedModel(model, names).eval()
    forms = {n: f for n, s in specs_of(model.config).items() if (f := standard(derive(s)))}
    flat = [x for own in states for x in own.values()]
    begun = [own[name] for own, given in zip(start, names, strict=True) for name in given]
    at_start = dict(zip(input_names(names), begun, strict=True))
    with one_refusal(layers), standing_in(_standing(model, forms)):
        prefill, step = (_graph(traced, given, flat) for given in (tokens, tokens[:, :1]))
    return Graphs(at_start, prefill, step, forms)


def _standing(model: MnemicForCausalLM, forms: dict[str, Standard]) -> dict[Any, StandardOperator]:
    """Return by layer what stands for its rule, where that is one of ``LinearAttention``'s."""
    found = {}
    for name, layers in memories(model).items():
        for layer in layers if name in forms else ():
            rule = derive(specs_of(model.config)[name])
            found[layer] = StandardOperator(layer.rule, rule, forms[name])
    return found


def _graph(traced: TracedModel, tokens: Tensor, states: list[Tensor]) -> ir.Model:
    """Convert the model to one graph, for any batch, and any tokens where there are several."""
    free = torch.export.Dim.DYNAMIC
    sizes = ({0: free, 1: free} if tokens.shape[1] > 1 else {0: free}, [{0: free}] * len(states))
    with torch.no_grad(), quiet():
        program = torch.export.export(traced, (tokens, states), dynamic_shapes=sizes, strict=False)
        hoist_constants(program)
        try:
            exported = torch.onnx.export(
                program, (), dynamo=True, verbose=False, external_data=False,
                input_names=[TOKENS, *input_names(traced.names)],
                output_names=[LOGITS, *input_names(traced.names, PRESENT)],
            )  # fmt: skip
        except torch.onnx.errors.OnnxExporterError:
            refuse_lacking(traced.model.config.layers, program)
            raise
    assert exported is not None
    model = exported.model
    _spread(model)
    _name_sizes(model)
    return model


def _spread(model: ir.Model) -> None:
    """Let each state have one row for all rows of the batch."""
    graph = model.graph
    tokens, *states = graph.inputs
    rows = ir.node("Shape", [tokens], {"start": 0, "end": 1})
    nodes = [rows]
    for past in states:
        ones = ir.tensor([1] * (len(past.shape) - 1), ir.DataType.INT64, name=f"{past.name}.ones")
        rest = ir.Value(name=ones.name, const_value=ones, shape=ones.shape,
                        type=ir.TensorType(ones.dtype))  # fmt: skip
        graph.register_initializer(rest)
        shape = ir.node("Concat", [rows.outputs[0], rest], {"axis": 0})
        spread = ir.node("Expand", [past, shape.outputs[0]])
        spread.outputs[0].shape, spread.outputs[0].type = past.shape, past.type
        past.replace_all_uses_with(spread.outputs[0])
        spread.replace_input_with(0, past)
        past.shape = ir.Shape(["B or 1", *past.shape[1:]])
        nodes += [shape, spread]
    graph.insert_before(graph[0], nodes)


def _name_sizes(model: ir.Model) -> None:
    """Call the batch B and the tokens T in what goes in and comes out."""
    tokens, logits = model.graph.inputs[0], model.graph.outputs[0]
    width = "T" if isinstance(tokens.shape[1], ir.SymbolicDim) else tokens.shape[1]
    tokens.shape = ir.Shape(["B", width])
    logits.shape = ir.Shape(["B", width, *logits.shape[2:]])
    for present in model.graph.outputs[1:]:
        present.shape = ir.Shape(["B", *present.shape[1:]])


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress, until the end of the block, what torch tells its own developers in an export."""
    below = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(below)
