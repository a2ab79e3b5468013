"""Plans over kept pairs → the source of their kernels, and what each takes."""

from dataclasses import dataclass, replace

from mnemic.codegen.ops import OPERATIONS, called
from mnemic.codegen.ops.operation import PAIRS
from mnemic.codegen.plan import Call, Given, Map, Plan, Quantity
from mnemic.codegen.streamed.behind import split_into_entries
from mnemic.codegen.streamed.block_gradient import block_backward
from mnemic.codegen.streamed.pair_layout import Streams, streams, with_rows
from mnemic.codegen.streamed.shared_out import shared_out
from mnemic.codegen.streamed.streamed_kernel import (
    Shape,
    Written,
    backward,
    forward,
    sizes_of,
    span_of,
)
from mnemic.codegen.streamed.substitution import divided, divided_gradient
from mnemic.codegen.streamed.substitution_kernels import form_kernels, gradient_kernels
from mnemic.codegen.tiled.axes import NoTiles
from mnemic.codegen.tiled.data import before, held_of, listed, row_of
from mnemic.codegen.tiled.gradient_plan import given_back, ordered, output_of, reversed_of
from mnemic.codegen.tiled.layout import Held
from mnemic.codegen.tiled.windows import opened

FORM = "Chunk by chunk, kept pairs block by block: arguments [B, R, H, ...], pairs [M, n, ...]."
GRADIENT = "The gradient: arguments, pairs, d_out and d of pairs -> gradients."
ROWS = "The gradient of rows, a program a chunk: arguments, pairs, d_out -> gradients, tiles."
BLOCKS = (
    "The gradient of pairs, a program a block: the same and the tiles, d of pairs -> d of pairs."
)


def keeps(plan: Plan) -> bool:
    """Return whether a plan's states grow by pairs."""
    return any("n" in plan.axes(state) for state in plan.states())


@dataclass(frozen=True)
class Split:
    """A plan over kept pairs, and what PyTorch computes of the arguments before."""

    plan: Plan
    before: tuple[Quantity, ...]
    taken: tuple[str, ...]
    known: dict[str, str]
    """States whose new entries are an argument's rows, each with that argument."""

    @property
    def alone(self) -> bool:
        """Whether each chunk can be run without those before it: all that it reads is there."""
        return set(self.known) == set(self.plan.states())


def split_by_token(plan: Plan, width: int = 1) -> Split:
    """Split off what each token computes by itself for the kept pairs, and what no tile can
    compute.

    ``width``: how many tokens a row sees; one less stand before the first.
    """
    outside: set[str] = set()
    for quantity in plan.ordered():
        operation = called(quantity)
        if operation and operation.by_token and not operation.on_tiles(PAIRS):
            outside |= _behind(plan, quantity.name)
    for rows in _appended(plan).values():
        if _by_token(plan, rows):
            outside |= _behind(plan, rows)
    outside = {n for n in outside if not isinstance(plan[n].op, Given)}
    before = tuple(_of_all(q, width) for q in plan.ordered() if q.name in outside)
    found = plan.emptied()
    found.graph = plan.graph.copy()
    for quantity in before:
        found.rewrite(replace(quantity, op=Given()))
    taken = tuple(
        n for n in plan.arguments()
        if n in found.arguments() or any(n in q.reads() for q in before)
    )  # fmt: skip
    known = {s: r for s, r in _appended(found).items() if isinstance(found[r].op, Given)}
    return Split(found, before, taken, known)


def _of_all(quantity: Quantity, width: int) -> Quantity:
    """Return a quantity as PyTorch computes it of all tokens: without rows before the first."""
    operation = called(quantity)
    if operation is None or not operation.of_windows:
        return quantity
    return replace(quantity, op=Call("from_first", quantity.reads()[:1], (("tail", width - 1),)))


def _appended(plan: Plan) -> dict[str, str]:
    """Return the rows that each state grows by, where its old entries stay."""
    found = {}
    for state, following in plan.following.items():
        op = plan[following].op
        if isinstance(op, Call) and op.function == "append_rows" and op.arguments[0] == state:
            found[state] = op.arguments[1]
    return found


def _by_token(plan: Plan, name: str) -> bool:
    """Return whether a quantity is given by its own token's arguments alone."""
    quantity = plan[name]
    if plan.axes(name)[:1] not in (("t",), ("s",)) or quantity.op == Given(state=True):
        return False
    match quantity.op:
        case Given():
            return True
        case Map() as op:
            return all(_by_token(plan, read.quantity) for read in op.reads)
        case Call(function=function, arguments=arguments):
            operation = OPERATIONS[function]
            early = operation.by_token or operation.of_windows
            return early and all(_by_token(plan, a) for a in arguments)
        case _:
            return False


def _behind(plan: Plan, name: str) -> set[str]:
    found = {name}
    for read in plan[name].reads():
        found |= _behind(plan, read)
    return found


# -- the source ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """The kernels of a form, and the reason if it has no gradient (else empty)."""

    text: str
    missing: str


def source(
    plan: Plan, logarithms: frozenset[str], steps: int, numbers: dict[str, str], width: int = 1
) -> Source:  # fmt: skip
    """Write the kernels of a chunk form over kept pairs; the plan is one before rewrites, a row of
    it sees the last ``width`` tokens.

    Raises ``NoTiles`` where it has none.
    """
    for quantity in plan.ordered():
        operation = called(quantity)
        if operation and operation.untiled:
            raise NoTiles(operation.untiled)
    cut = split_by_token(plan, width)
    inside, windows = opened(cut.plan, width)
    cut = replace(cut, plan=inside)
    found = streams(cut.plan, logarithms, output=cut.plan.output, windows=windows)
    known = frozenset(cut.known) if cut.alone else frozenset(cut.known) & _plain(found)
    pair = _divided(cut, found, logarithms, numbers, known)
    pair = pair or _pair(cut, found, logarithms, numbers, known)
    parts = [kernel.text for kernel in pair.all]
    parts.append(before(cut.plan, cut.before, cut.taken, found.lay.rows, "chunk"))
    parts.append(_kernel(cut, found, steps, known, pair))
    return Source("\n\n".join(parts), pair.missing)


@dataclass(frozen=True)
class Pair:
    """A form's kernel and its gradient's, or the reason why it has none; and the axis that both
    loop along."""

    forward: Written
    gradient: "Gradient | None"
    missing: str
    along: str
    data: tuple[str, ...] = ()
    """What else the module's data say, of a form that is divided."""

    @property
    def all(self) -> tuple[Written, ...]:
        """The kernels that there are."""
        return (self.forward, *(self.gradient.kernels if self.gradient else ()))


@dataclass(frozen=True)
class Gradient:
    """A gradient's kernel, or two: that of rows, and that of pairs with what it is handed."""

    kernels: tuple[Written, ...]
    names: tuple[str, ...]
    """The arguments that have a gradient."""
    handed: tuple[Held, ...] = ()


def _divided(
    cut: Split, found: Streams, logarithms: frozenset[str], numbers: dict[str, str],
    known: frozenset[str],
) -> Pair | None:  # fmt: skip
    """Write the kernels of a form whose pairs are made of earlier ones; ``None`` for any other."""
    form = None if cut.alone else divided(found, known, logarithms)
    if form is None:
        return None
    own = {state: rows for state, rows in cut.known.items() if state in known}
    back = divided_gradient(form, own)
    if back is None:
        return None
    ahead, behind = form_kernels(form, numbers, known), gradient_kernels(back, numbers)
    names = {*back.reading.gradients, *back.rest.gradients}
    gradients = tuple(row.name for row in found.lay.rows if row.name in names)
    return Pair(
        ahead.joined(), Gradient((behind.joined(),), gradients), "", "",
        (*ahead.data, *behind.data),
    )  # fmt: skip


def _pair(
    cut: Split, found: Streams, logarithms: frozenset[str], numbers: dict[str, str],
    known: frozenset[str],
) -> Pair:  # fmt: skip
    """Write the kernels, along the first axis of the memories beside the pairs that both can go
    along; with whole memories where there is none."""
    whole = _along(cut, found, logarithms, numbers, known, "")
    for along in _axes(found):
        try:
            pair = _along(cut, found, logarithms, numbers, known, along)
        except NoTiles:
            continue
        if pair.missing == whole.missing:
            return pair
    return whole


def _axes(found: Streams) -> list[str]:
    """Return the axes of all memories beside the pairs, first those of no argument's rows."""
    held = [set(state.sizes) for state in found.lay.states]
    rows = {size for row in found.lay.rows for size in row.sizes}
    return sorted(set.intersection(*held) if held else (), key=lambda size: (size in rows, size))


def _along(
    cut: Split, found: Streams, logarithms: frozenset[str], numbers: dict[str, str],
    known: frozenset[str], along: str,
) -> Pair:  # fmt: skip
    shape = Shape("chunk_forward", FORM, cut.alone, span_of(found), along=along)
    ahead = forward(found, numbers, shape, known)
    try:
        return Pair(ahead, _gradient(cut, found, logarithms, numbers, along), "", along)
    except NoTiles as reason:
        return Pair(ahead, None, str(reason), along)


def _plain(found: Streams) -> frozenset[str]:
    """Return the states whose entries stay as they are."""
    return frozenset(s for s, g in found.growth.items() if g.kept == s and not g.tail)


def _gradient(
    cut: Split, found: Streams, logarithms: frozenset[str], numbers: dict[str, str], along: str
) -> Gradient:  # fmt: skip
    """Write a gradient's kernels: two where pairs stay as they are and theirs is a plain sum."""
    back = reversed_of(cut.plan)
    back = replace(back, plan=split_into_entries(back.plan))
    under = streams(
        back.plan, logarithms, output=output_of(back), given=back.states, like=found,
        windows=found.lay.windows,
    )  # fmt: skip
    under = with_rows(under, ordered(found.lay.rows, under.lay.rows))
    back = given_back(back, found.lay.rows)
    span, names = span_of(found), tuple(back.gradients)
    still = len(_plain(found)) == len(found.kept)
    shared = shared_out(under, back, cut.known) if still else None
    if shared is None:
        shape = Shape(
            "chunk_backward", GRADIENT, alone=False, span=span, one=bool(found.lay.states),
            along=along,
        )  # fmt: skip
        return Gradient((backward(under, back.gradients, numbers, shape),), names)
    own = Shape("chunk_backward", ROWS, alone=True, span=span)
    blocks = Shape("chunk_backward_pairs", BLOCKS, alone=False, span=span)
    kernels = (
        backward(shared.rows, shared.gradients, numbers, own, shared.handed),
        block_backward(shared, numbers, blocks),
    )
    return Gradient(kernels, names, shared.handed)


def _kernel(
    cut: Split, found: Streams, steps: int, known: frozenset[str], pair: Pair
) -> str:  # fmt: skip
    """Write what the kernels take, as data of the module."""
    own = {state: rows for state, rows in cut.known.items() if state in known}
    kept = [
        f"Kept({x.name!r}, {x.sizes!r}, {own.get(x.name, '')!r}, wide={x.name in found.wide})"
        for x in found.kept
    ]
    lines = [
        f"CHUNK = {'Substituted' if pair.data else 'Streamed'}(",
        "    chunk_forward,",
        f"    {'chunk_backward' if pair.gradient else 'None'},",
        *listed("rows", map(row_of, found.lay.rows)),
        *listed("kept", kept),
        *listed("states", map(held_of, found.lay.states)),
        f"    sizes={sizes_of(found)!r},",
        f"    gradients={pair.gradient.names if pair.gradient else ()!r},",
        f"    value={found.lay.value!r},",
        f"    alone={cut.alone or bool(pair.data)},",
        f"    alive={tuple(kernel.alive for kernel in pair.all)!r},",
        f"    steps={steps},",
        *_swept(pair.along, pair.all),
        *_shared(pair.gradient),
        *pair.data,
        *(["    moving=True,"] if found.lay.states or len(_plain(found)) < len(found.kept) else []),
        *([f"    window={found.lay.windows.width},"] if found.lay.sourced else []),
        "    before=chunk_before,",
        f"    taken={cut.taken!r},",
        ")",
    ]
    return "\n".join(lines) + "\n"


def _shared(gradient: Gradient | None) -> list[str]:
    """Write the data of a gradient of pairs with a kernel of its own, and what that is handed."""
    if gradient is None or len(gradient.kernels) == 1:
        return []
    return ["    by_blocks=chunk_backward_pairs,", *listed("handed", map(held_of, gradient.handed))]


def _swept(along: str, kernels: tuple[Written, ...]) -> list[str]:
    """Write the axis that memories are gone along by blocks, and what programs keep meanwhile."""
    rooms = tuple(kernel.room for kernel in kernels)
    return [f"    along={along!r},", f"    room={rooms!r},"] if along else []
