"""Constants of a scan's body as inputs of the program, where ONNX's exporter takes them."""

from typing import Any, Final

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

_ATEN: Final = torch.ops.aten
_SAME: Final = (_ATEN.lift_fresh_copy.default, _ATEN.detach_.default, _ATEN.detach.default)
"""What torch puts behind a constant that it met while it traced."""


def hoist_constants(program: ExportedProgram) -> None:
    """Give the bodies of a program's scans their constants from outside, in place.

    torch 2.13 cannot decompose a scan whose body holds a tensor of its own ("Attempting to use
    FunctionalTensor on its own"), such as the indices of a Taylor feature map.
    """
    program.example_inputs = None  # guards of them would not know the new inputs
    graph = program.graph_module.graph
    scans = [n for n in graph.nodes if n.target is torch.ops.higher_order.scan]
    for scan in scans:
        body: Any = getattr(program.graph_module, scan.args[0].target)
        nodes = [n for n in body.graph.nodes if isinstance(_tensor_of(body, n), Tensor)]
        given = tuple(_from_outside(program, body, n, scan.args[0].target) for n in nodes)
        for node in [n for n in body.graph.nodes if n.target in _SAME]:
            node.replace_all_uses_with(node.args[0])
            body.graph.erase_node(node)
        scan.args = (*scan.args[:3], (*scan.args[3], *given))
        body.recompile()
    program.graph_module.recompile()


def _tensor_of(body: fx.GraphModule, node: fx.Node) -> Any:
    return getattr(body, str(node.target), None) if node.op == "get_attr" else None


def _from_outside(
    program: ExportedProgram, body: fx.GraphModule, node: fx.Node, scan: str
) -> fx.Node:
    """Turn a body's constant into its last input; return the program's input that it comes from."""
    found = _tensor_of(body, node)
    constant = torch.tensor(found.tolist(), dtype=found.dtype)  # traced ones are of a mode's class
    delattr(body, str(node.target))
    graph = program.graph_module.graph
    with graph.inserting_before(next(iter(graph.nodes))):
        outer: fx.Node = graph.placeholder(f"{scan}_{node.target}")
    outer.meta["val"] = _fake_mode(graph).from_tensor(constant)
    argument = TensorArgument(outer.name)
    spec = InputSpec(InputKind.CONSTANT_TENSOR, argument, outer.name)
    program.graph_signature.input_specs.insert(0, spec)
    program.constants[outer.name] = constant
    last = [n for n in body.graph.nodes if n.op == "placeholder"][-1]
    with body.graph.inserting_after(last):
        inner = body.graph.placeholder(f"constant_{outer.name}")
    inner.meta["val"] = outer.meta["val"]
    node.replace_all_uses_with(inner)
    body.graph.erase_node(node)
    return outer


def _fake_mode(graph: fx.Graph) -> Any:
    values = (n.meta.get("val") for n in graph.nodes if n.op == "placeholder")
    return next(value.fake_mode for value in values if hasattr(value, "fake_mode"))
