"""Plan → PyTorch source: one statement a quantity, in the order of the graph."""

import re
from collections.abc import Sequence
from typing import Any

from mnemic.codegen.large import Part, large, parts
from mnemic.codegen.plan import Call, Fused, Given, Map, Phases, Plan, Product, Quantity, Read
from mnemic.codegen.torch_printer import print_torch

WIDTH = 96

FUNCTIONS = ("error", "adjoint", "similarity")
"""Options that name a function of the module."""
OUTPUT = "y"
"""What a closing calls the output, where it reads anew."""


def statement(plan: Plan, quantity: Quantity, spelled: dict[str, str]) -> str:
    """Return the right-hand side of a quantity's assignment; ``spelled`` renames what it reads."""
    match quantity.op:
        case Map(expr=expr, reads=reads):
            return _map(quantity, expr, reads, spelled)
        case Product(left=left, right=right, flip_left=fl, flip_right=fr):
            a, b = spelled.get(left, left), spelled.get(right, right)
            return f"{a}{'.mT' if fl else ''} @ {b}{'.mT' if fr else ''}"
        case Fused(addend=addend, product=product, sign=sign):
            a, b = (spelled.get(n, n) for n in (product.left, product.right))
            a, b = a + ".mT" * product.flip_left, b + ".mT" * product.flip_right
            name = "add_product" if sign > 0 else "subtract_product"
            return f"ops.{name}({spelled.get(addend, addend)}, {a}, {b})"
        case Call(function=function, arguments=arguments, options=options):
            parts = [spelled.get(a, a) for a in arguments]
            parts += [f"{name}={_option(function, name, value)}" for name, value in options]
            return f"{_callee(plan, function)}({', '.join(parts)})"
        case Given():
            raise AssertionError(quantity.name)


def _callee(plan: Plan, function: str) -> str:
    return function if function in plan.functions else f"ops.{function}"


def _option(function: str, name: str, value: Any) -> str:
    code = isinstance(value, str) and (value.startswith("lambda ") or name in FUNCTIONS)
    if code and function != "features":
        return str(value)
    return repr(value).replace("inf", "math.inf") if isinstance(value, tuple) else repr(value)


def _map(quantity: Quantity, expr: Any, reads: tuple[Read, ...], spelled: dict[str, str]) -> str:
    axes = list(quantity.axes)
    names = {}
    for read in reads:
        name = spelled.get(read.quantity, read.quantity)
        names[read.symbol] = name + aligned(read.axes, axes)
    return print_torch(expr, names)


def aligned(axes: tuple[str, ...], into: list[str]) -> str:
    """Return the index that lines a quantity's trailing axes up with those of the result."""
    if not axes:
        return "[..." + ", None" * len(into) + "]" if into else ""
    kept = [":" if axis in axes else "None" for axis in into]
    if "None" not in kept:
        return ""
    lead = kept.index("None")
    if all(k == "None" for k in kept[lead:]):
        return "[..." + ", None" * (len(kept) - lead) + "]"
    first = 0 if kept[0] == "None" else kept.index("None")
    return "[..., " + ", ".join(kept[first if kept[0] == "None" else 0 :]) + "]"


def wrapped(target: str, source: str, comment: str, indent: int) -> list[str]:
    """Write an assignment in lines of at most ``WIDTH`` characters, its equation as a comment."""
    pad = " " * indent
    tail = f"  # {comment}" if comment else ""
    line = f"{pad}{target} = {source}"
    if len(line) + len(tail) <= WIDTH:
        return [line + tail]
    if len(line) <= WIDTH:
        return [f"{pad}# {comment}", line] if comment else [line]
    head = [f"{pad}# {comment}"] if comment else []
    return [*head, f"{pad}{target} = (", *_broken(source, indent + 4), f"{pad})"]


def _broken(source: str, indent: int) -> list[str]:
    """Break a long expression at commas and operators outside of its words."""
    lines, current = [], " " * indent
    whole = re.sub(r"math\.\w+\([^()]*\)", lambda call: call[0].replace(" ", "\0"), source)
    for word in whole.split(" "):
        if len(current) + len(word) + 1 > WIDTH and current.strip():
            lines.append(current.rstrip())
            current = " " * indent
        current += word + " "
    return [line.replace("\0", " ") for line in (*lines, current.rstrip())]


def block(
    plan: Plan, quantities: tuple[Quantity, ...], indent: int, numbers: dict[str, str],
    spelled: dict[str, str] | None = None,
) -> list[str]:  # fmt: skip
    """Write the statements of one phase of a plan."""
    lines: list[str] = []
    for quantity in quantities:
        if isinstance(quantity.op, Given):
            continue
        source = statement(plan, quantity, spelled or {})
        comment = numbers.get(quantity.equation, "")
        lines += wrapped(quantity.name, source, comment, indent)
    return lines


def loop(plan: Plan, numbers: dict[str, str], doc: str, name: str, each: str) -> str:
    """Write a form: what no state reaches is computed at once, the rest ``each`` by each.

    Arguments are [T, M, …] or [N, M, C, …], states [M, …]. A token's matrices are computed at that
    token: those of all tokens would take as much memory as T states.
    """
    phases = plan.phases(_matrices(plan) if each == "token" else _of_rows(plan))
    scan = parts(plan, phases.scan) if each == "chunk" else phases.scan
    lines = [line for one in scan if isinstance(one, Part) for line in _of_part(plan, one, numbers)]
    lines += _opening(plan, name, doc)
    before = block(plan, phases.before, 4, numbers)
    lines += [f"    # every {each} at once", *before] if before else []
    index = each[0]
    slices = _slices(plan, phases)
    heading = [f"    # {each} by {each}"] if before else []
    lines += [*heading, "    outputs = []", *_loop(index, slices, counted=bool(phases.closings))]
    spelled = {n: f"{n}_{index}" for n in slices}
    for one in scan:
        lines += (
            _by_memory(plan, one, spelled)
            if isinstance(one, Part)
            else block(plan, (one,), 8, numbers, spelled)
        )
    lines += _advance(plan, phases, numbers, spelled, index)
    lines += _returned("torch.stack(outputs), ", {s: s for s in plan.states()})
    return "\n".join(lines) + "\n"


def parts_of(plan: Plan) -> list[str]:
    """Return the names of the functions that the chunk form calls by memory."""
    scan = parts(plan, plan.phases(_of_rows(plan)).scan)
    return [one.name for one in scan if isinstance(one, Part)]


def _of_part(plan: Plan, part: Part, numbers: dict[str, str]) -> list[str]:
    """Return the function of a part that holds a matrix for every row."""
    head = wrapped_call(f"def {part.name}(", part.inputs, "):", 0)
    doc = f'    """{sentence(part.outputs)} of a few memories, each row with its own matrix."""'
    lines = [*head, doc, *block(plan, part.members, 4, numbers)]
    return [*lines, f"    return {', '.join(part.outputs)}", "", ""]


def _by_memory(plan: Plan, part: Part, spelled: dict[str, str]) -> list[str]:
    """Return the call of a part's function."""
    names = [spelled.get(name, name) for name in part.inputs]
    lengths = dict[str, str]()
    for name, shown in zip(part.inputs, names, strict=True):
        axes = plan.axes(name)
        for place, axis in enumerate(axes):
            lengths.setdefault(axis, f"{shown}.shape[{place - len(axes)}]")
    large = max((q.axes for q in part.members), key=len)
    entries = " * ".join(lengths[axis] for axis in large if axis in lengths)
    start = f"        {', '.join(part.outputs)} = ops.by_memory("
    return wrapped_call(start, (part.name, entries, *names), ")", 8)


def wrapped_call(start: str, arguments: Sequence[str], end: str, indent: int) -> list[str]:
    """Return a call, or the head of a function, on as many lines as it takes."""
    line = f"{start}{', '.join(arguments)}{end}"
    if len(line) <= WIDTH:
        return [line]
    return [start, *_broken(f"{', '.join(arguments)},", indent + 4), " " * indent + end]


def sentence(names: Sequence[str]) -> str:
    """Return names as a sentence lists them."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _matrices(plan: Plan) -> list[str]:
    """List what a plan computes that is as large as a memory of its states."""
    sizes = {plan.axes(s)[-2:] for s in plan.states()}
    computed = (n for n in plan.graph if not isinstance(plan[n].op, Given))
    return [n for n in computed if len(plan.axes(n)) > 1 and plan.axes(n)[-2:] in sizes]


def _of_rows(plan: Plan) -> list[str]:
    """List what a chunk computes that holds a matrix for every row."""
    computed = (n for n in plan.graph if not isinstance(plan[n].op, Given))
    return [n for n in computed if large(plan.axes(n))]


def function(plan: Plan, numbers: dict[str, str], name: str, doc: str) -> str:
    """Write a plan without a loop as one function, which gives what follows by state."""
    lines = [f"def {name}({', '.join(plan.arguments())}):", f'    """{doc}"""']
    lines += block(plan, plan.ordered(), 4, numbers)
    return "\n".join([*lines, *_returned("", plan.following)]) + "\n"


def reader(plan: Plan, numbers: dict[str, str], name: str, doc: str) -> str:
    """Write a plan that moves no state as a function of arguments and states, giving the output."""
    statements = plan.ordered()
    states = [q.name for q in statements if q.op == Given(state=True)]
    arguments = ", ".join([*plan.arguments(), *(["*"] if states else []), *states])
    lines = [f"def {name}({arguments}):", f'    """{doc}"""', *block(plan, statements, 4, numbers)]
    return "\n".join([*lines, f"    return {plan.output}"]) + "\n"


def _opening(plan: Plan, name: str, doc: str) -> list[str]:
    arguments = ", ".join([*plan.arguments(), "*", *plan.states(), "closes"])
    if not plan.arguments():
        raise AssertionError("a form without arguments")
    head = f"def {name}({arguments}):"
    if len(head) > WIDTH:
        head = "\n".join([f"def {name}(", *_broken(f"{arguments},", 4), "):"])
    return [head, f'    """{doc}"""']


def _loop(index: str, slices: list[str], *, counted: bool) -> list[str]:
    """Write the head of the loop over the leading axis (cut once: slices cost a gradient each)."""
    left, right = ", ".join(f"{n}_{index}" for n in slices), ", ".join(slices)
    comma = "," if len(slices) == 1 else ""
    turns, close = (f"{index}, (", "))") if counted else ("", ")")
    loop = "enumerate(ops.each(" if counted else "ops.each("
    line = f"    for {turns}{left}{comma}{')' if counted else ''} in {loop}{right}{close}:"
    if len(line) <= WIDTH:
        return [line]
    return [
        f"    for {turns or '('}",
        *_broken(left + comma, 8),
        f"    ) in {loop}",
        *_broken(right, 8),
        f"    {close}:",
    ]


def _advance(
    plan: Plan, phases: Phases, numbers: dict[str, str], spelled: dict[str, str], index: str
) -> list[str]:
    """Write how states move to what follows; where an interval ends, its closing moves more."""
    output = spelled.get(plan.output, plan.output)
    moves = {s: n for s, n in plan.following.items() if s != n}
    lines = []
    if moves:
        lines += _moved({s: spelled.get(n, n) for s, n in moves.items()}, 8)
    for closing in phases.closings:
        renamed = {**spelled, **{n: s for s, n in moves.items()}}
        renamed |= {n: output if s == OUTPUT else s for n, s in closing.renamed.items()}
        lines.append(f"        if closes({index}, {closing.every}):")
        lines += block(plan, closing.statements, 12, numbers, renamed)
        ends = {s: renamed.get(n, n) for s, n in closing.moves.items()}
        lines += _moved({output if s == OUTPUT else s: n for s, n in ends.items()}, 12)
    return [*lines, f"        outputs.append({output})"]


def _moved(values: dict[str, str], indent: int) -> list[str]:
    """Write assignments that are made at once."""
    return wrapped(", ".join(values), ", ".join(values.values()), "", indent)


def at_once(values: dict[str, str]) -> str:
    """Return one assignment of all values, on a line of its own."""
    return f"{', '.join(values)} = {', '.join(values.values())}"


def _returned(before: str, values: dict[str, str]) -> list[str]:
    """Write the statement that returns a dictionary, on as many lines as it takes."""
    line = f"    return {before}{dictionary(values)}"
    if len(line) <= WIDTH:
        return [line]
    pairs = ", ".join(f'"{name}":\0{value}' for name, value in values.items())
    return [f"    return {before}{{", *_broken(f"{pairs},", 8), "    }"]


def dictionary(values: dict[str, str]) -> str:
    """Return a dictionary's display."""
    return "{" + ", ".join(f'"{name}": {value}' for name, value in values.items()) + "}"


def _slices(plan: Plan, phases: Phases) -> list[str]:
    """List what the loop reads of quantities that were computed for all at once."""
    outside = {q.name for q in phases.before}
    inside = [*phases.scan, *(q for closing in phases.closings for q in closing.statements)]
    read = [n for q in inside for n in q.reads() if n in outside | set(plan.arguments())]
    values = [value for moves in plan.closed.values() for value in moves.values()]
    ends = [n for n in (*plan.following.values(), *values, plan.output) if n in outside]
    return list(dict.fromkeys(read + ends))
