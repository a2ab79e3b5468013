"""Graphs as files: a prefill and a step over one file of weights, and the states to begin with."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy
import onnx
import onnx_ir as ir
from onnx import version_converter
from torch import Tensor

from mnemic.export.graph import Graphs
from mnemic.export.linear_attention import HOLDER, OPERATOR, OPSET

START: Final = "start.onnx"
PREFILL: Final = "prefill.onnx"
STEP: Final = "step.onnx"
WEIGHTS: Final = "weights.bin"

START_OPSET: Final = 20
IR: Final = 10
"""The versions that torch.onnx writes."""

SMALL: Final = 1024
"""Bytes up to which a tensor stays in its graph."""

ALIGNED: Final = 64


def write_graphs(graphs: Graphs, folder: Path) -> None:
    """Write ``start.onnx``, ``prefill.onnx``, ``step.onnx`` and ``weights.bin`` into a folder."""
    places: dict[str, tuple[int, int]] = {}
    with (folder / WEIGHTS).open("wb") as file:
        for name, model in ((PREFILL, graphs.prefill), (STEP, graphs.step)):
            _set_aside(model, file, places)
            proto = ir.serde.serialize_model(model)
            if graphs.standard:
                proto = _in_the_operators_opset(proto)
            (folder / name).write_bytes(proto.SerializeToString())
    (folder / START).write_bytes(_start(graphs.start).SerializeToString())
    for name in (START, PREFILL, STEP):
        onnx.checker.check_model(folder / name, full_check=True)


def _set_aside(model: ir.Model, file: Any, places: dict[str, tuple[int, int]]) -> None:
    """Write a graph's weights behind those that are there, and let the graph point at them."""
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= SMALL:
            continue
        data = tensor.tobytes()
        key = hashlib.sha256(data).hexdigest()
        if key not in places:
            file.write(bytes(-file.tell() % ALIGNED))
            places[key] = file.tell(), len(data)
            file.write(data)
        offset, length = places[key]
        value.const_value = ir.ExternalTensor(
            WEIGHTS, offset, length, tensor.dtype, shape=tensor.shape, name=str(value.name)
        )


def _start(states: Mapping[str, Tensor]) -> onnx.ModelProto:
    """Make a graph of no input that gives the states before the first token, [1, …]."""
    nodes, outputs = [], []
    for name, state in states.items():
        value, axes = state.numpy(force=True), list(state.shape)
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        outputs.append(onnx.helper.make_tensor_value_info(name, kind, axes))
        if value.size and (value == value.flat[0]).all():
            sizes = onnx.numpy_helper.from_array(numpy.array(axes, dtype=numpy.int64))
            one = onnx.numpy_helper.from_array(value.reshape(-1)[:1])
            nodes.append(onnx.helper.make_node("Constant", [], [f"{name}.shape"], value=sizes))
            nodes.append(
                onnx.helper.make_node("ConstantOfShape", [f"{name}.shape"], [name], value=one)
            )
        else:
            whole = onnx.numpy_helper.from_array(value)
            nodes.append(onnx.helper.make_node("Constant", [], [name], value=whole))
    graph = onnx.helper.make_graph(nodes, "start", [], outputs)
    opset = onnx.helper.make_opsetid("", START_OPSET)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=IR)


def _in_the_operators_opset(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Convert the graph to the opset of ``LinearAttention``, and its nodes to that operator."""
    outside = [t for t in proto.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    inline = [t for t in proto.graph.initializer if t.data_location != onnx.TensorProto.EXTERNAL]
    inputs = list(proto.graph.input)
    named = {x.name for x in inputs}
    proto.graph.ClearField("initializer")
    proto.graph.initializer.extend(inline)
    for t in outside:  # the converter would lose where they are
        if t.name not in named:
            given = onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims)
            proto.graph.input.append(given)
    found = version_converter.convert_version(proto, OPSET)
    del found.graph.input[:]
    found.graph.input.extend(inputs)
    found.graph.initializer.extend(outside)
    for node in found.graph.node:
        if (node.domain, node.op_type) == (HOLDER, OPERATOR):
            node.domain = ""
    del found.opset_import[:]
    found.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    return found
