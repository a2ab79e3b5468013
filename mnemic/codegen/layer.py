"""Rule → the generated layer: the spec's block as data, its coefficients as PyTorch."""

from dataclasses import dataclass
from typing import Any

from mnemic.codegen.activations import as_function, expression, logarithm, reached
from mnemic.codegen.support.signature import Signature
from mnemic.codegen.titles import title_of
from mnemic.codegen.torch_printer import print_torch
from mnemic.compiler.problem import Scalar
from mnemic.compiler.rule import Rule
from mnemic.dsl.block import Block
from mnemic.dsl.spec import Spec
from mnemic.dsl.starts import start_of
from mnemic.errors import InvalidSpec, Issue

LAYER = '''

class {name}(MemoryLayer):
    """{title} as a layer, [B, T, dim] → [B, T, dim]."""

    rule = rule
    block = {block}
{data}
'''

USED = frozenset({"x", "self", "torch", "math", "F", "ops", "norm", "TINY"})
"""Names that the method of the coefficients uses itself."""

LINKED = '''
    @staticmethod
    def linked(A):
        """W_0 = link(A_0)."""
        nu = ops.entry_norm(A, power={power})[..., None, None]
        return {entry}
'''

COEFFICIENTS = '''
    def coefficients(self, x):
        """{shapes}."""
{lines}
        return {{
{entries}
        }}
'''


HYBRID = '''

class Layer({base}):
    """{title}: {words}, [B, T, dim] → [B, T, dim].

    {equation}
    """

    rule = rule
    memory_type = Memory
    beside = {beside}
'''


@dataclass(frozen=True)
class Kind:
    """A kind of hybrid: its module of the support package, its class, what it is."""

    module: str
    base: str
    words: str
    equation: str


HYBRIDS: dict[str, Kind] = {
    "context": Kind(
        "memory_as_context", "MemoryAsContext", "its read-out as context of attention",
        "h = M(S);  y = attention over [p; h; S];  M is written from y;  o = y ⊗ M(y)",
    ),
    "gate": Kind(
        "memory_as_gate", "MemoryAsGate", "beside sliding-window attention, as its gate",
        "o = SWA([p; x]) ⊗ M([p; x])",
    ),
    "layer": Kind(
        "memory_as_layer", "MemoryAsLayer", "before sliding-window attention",
        "o = SWA(M([p; x]))",
    ),
}  # fmt: skip
"""Kinds of hybrid by their word in a spec's block."""


def imports(block: Block) -> str:
    """Return the import lines that a hybrid's module needs, none for another block."""
    if block.hybrid == "none":
        return ""
    kind = HYBRIDS[block.hybrid]
    return f"from .support.block import Beside\nfrom .support.{kind.module} import {kind.base}\n"


def check_readable(rule: Rule, readable: bool) -> None:
    """Raise ``InvalidSpec`` where a memory is the context, and cannot be read without a write."""
    if rule.problem.spec.block.hybrid == "context" and not readable:
        reason = "context is read before anything is written, and this rule reads only as it writes"
        raise InvalidSpec((Issue(reason, where=f"{rule.name} block.hybrid"),))


def source(
    rule: Rule, signature: Signature, reads: frozenset[str], *, readable: bool, step: str
) -> str:
    """Write the layer's class, or the memory's and the hybrid's.

    ``reads`` are the rule's arguments that its forms read, ``readable`` whether the memory can be
    read without a write, ``step`` the line that gives the kernel of a token, or why there is none.
    Raises ``InvalidSpec`` where a hybrid needs that and cannot have it, and for an ``init`` out of
    reach.
    """
    spec = rule.problem.spec
    hybrid = spec.block.hybrid != "none"
    check_readable(rule, readable)
    vectors, constant = _vectors(spec.block, signature, reads)
    text = LAYER.format(
        name="Memory" if hybrid else "Layer",
        title=title_of(spec),
        block=_block(spec.block),
        data="\n".join(
            [
                *_activations(vectors),
                *_constant(constant),
                *_learned(rule),
                *_spread(rule),
                step,
            ]
        ),
    )
    return text + _coefficients(rule, signature) + (_hybrid(spec) if hybrid else "")


def _hybrid(spec: Spec) -> str:
    """Write the layer around a memory and an attention."""
    block = spec.block
    told = {"window": block.attention_window, "segment": block.segment}
    fields = [f"{name}={value}" for name, value in told.items() if value is not None]
    fields += [f"persistent={block.persistent}", f"rotary={block.rotary in (True, 'attention')}"]
    kind = HYBRIDS[block.hybrid]
    return HYBRID.format(
        base=kind.base, title=title_of(spec), words=kind.words, equation=kind.equation,
        beside=f"Beside({', '.join(fields)})",
    )  # fmt: skip


# -- the block -------------------------------------------------------------------------------


def _block(block: Block) -> str:
    named = ("heads", "key_dim", "value_dim", "groups", "convolution", "qk_norm", "scale",
             "output_norm")  # fmt: skip
    fields = ", ".join(f"{name}={getattr(block, name)!r}" for name in named[:5])
    rest = ", ".join(f"{name}={getattr(block, name)!r}" for name in named[5:])
    rest += f", rotary={block.rotary in (True, 'memory')}" + ", skip=True" * block.skip
    return f"Block(\n        {fields},\n        {rest},\n    )"


def _vectors(
    block: Block, signature: Signature, reads: frozenset[str]
) -> tuple[dict[str, str], dict[str, float]]:
    """Return the activation of each projected vector (and the gate), and each constant's value."""
    vectors: dict[str, str] = {}
    constant: dict[str, float] = {}
    for name, text in vector_texts(block, signature).items():
        if name not in reads:
            constant[name] = 0.0
        elif expression(text).is_number:
            constant[name] = float(expression(text))
        else:
            vectors[name] = as_function(text)
    gate = gate_of(block)
    if gate is not None:
        vectors["gate"] = as_function(gate)
    return vectors, constant


def vector_texts(block: Block, signature: Signature) -> dict[str, str]:
    """Return the text of the activation of each vector that a rule takes."""
    told = {"q": block.query, "k": block.key, "v": block.value}
    names = ("q", "k", "v", *signature.keys)
    return {name: told.get(name, block.key) or block.activation for name in names}


def gate_of(block: Block) -> str | None:
    """Return the text of the output gate's activation, ``None`` where there is no gate."""
    return block.gate if block.gate != "none" and expression(block.gate) != 1 else None


def _activations(vectors: dict[str, str]) -> list[str]:
    entries = [f'        "{name}": {text},' for name, text in vectors.items()]
    return ["    activations = {", *entries, "    }"]


def _constant(constant: dict[str, float]) -> list[str]:
    return [f"    constant = {constant!r}"] if constant else []


# -- the coefficients ------------------------------------------------------------------------


def learned_scalars(rule: Rule) -> list[Scalar]:
    """Return the coefficients that a layer makes of its input, or learns."""
    return [s for s in rule.scalars if s.argument is not None]


def activation_of(scalar: Scalar) -> Any:
    """Return a coefficient's activation as an expression in x."""
    text = scalar.declared.activation or start_of(scalar.name)[0]
    return expression(text)


def _learned(rule: Rule) -> list[str]:
    rows = [
        f'        Learned("{s.name}", "{s.argument}", "{s.declared.origin}", {start(rule, s)}),'
        for s in learned_scalars(rule)
    ]
    return ["    learned = (", *rows, "    )"] if rows else []


def _spread(rule: Rule) -> list[str]:
    """Write how a deep memory starts: by ``linked``, or how far apart its duals' entries are."""
    link = rule.retained.link
    if rule.parameters and link.normaliser == "norm" and link.expr is not None:
        names = {"a": "A", "nu": "nu"}
        return [LINKED.format(power=float(link.power), entry=print_torch(link.expr, names))]
    return [f"    spread = {link.unit!r}"] if rule.parameters and link.unit else []


def start(rule: Rule, scalar: Scalar) -> tuple[float, float]:
    """Return the range in which a coefficient starts, before its activation."""
    declared, activation = scalar.declared, activation_of(scalar)
    if declared.starts:
        found = [_reached(rule, scalar, activation, x) for x in declared.starts]
        return (found[0], found[-1])
    told = start_of(scalar.name)[1]
    if told is None or (declared.activation is not None and not isinstance(told, tuple)):
        return (0.0, 0.0)
    low, high = told if isinstance(told, tuple) else (told, told)
    ends = (reached(activation, low), reached(activation, high))
    return (0.0, 0.0) if ends[0] is None or ends[1] is None else (ends[0], ends[1])


def _reached(rule: Rule, scalar: Scalar, activation: Any, start: float) -> float:
    """Find where an activation has a value; raise ``InvalidSpec`` where it never does."""
    found = reached(activation, start)
    if found is None:
        where = f"{rule.name} {scalar.place}.init"
        told = scalar.declared.activation or start_of(scalar.name)[0]
        reason = f"is not a value that the activation {told} can take"
        raise InvalidSpec((Issue(reason, where, f"{start:g}"),))
    return found


def _coefficients(rule: Rule, signature: Signature) -> str:
    """Write the method that gives the rule its coefficients."""
    scalars = learned_scalars(rule)
    if not scalars:
        return ""
    shapes = {c.name: str(c).split(":", maxsplit=1)[0] for c in signature.coefficients}
    local = {s.name: _local(s.name, scalars) for s in scalars}
    entries = []
    for s in scalars:
        expr = logarithm(activation_of(s)) if s.logarithmic else activation_of(s)
        entries.append(f'            "{s.argument}": {print_torch(expr, {"x": local[s.name]})},')
    return COEFFICIENTS.format(
        shapes=", ".join(shapes[str(s.argument)] for s in scalars),
        lines="\n".join(f'        {local[s.name]} = self.raw("{s.name}", x)' for s in scalars),
        entries="\n".join(entries),
    )


def _local(name: str, scalars: list[Scalar]) -> str:
    """Return a coefficient's name in the generated method, which has names of its own."""
    others = {s.name for s in scalars} - {name}
    while name in USED | others:
        name += "_"
    return name
