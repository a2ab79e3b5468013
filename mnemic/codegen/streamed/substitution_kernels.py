"""The kernels of a form over pairs that are made of earlier pairs (``substitution``)."""

from collections.abc import Iterator
from dataclasses import dataclass

from mnemic.codegen.plan import Quantity
from mnemic.codegen.streamed.block_gradient import block_backward
from mnemic.codegen.streamed.body import Body
from mnemic.codegen.streamed.lines import store_handed
from mnemic.codegen.streamed.pair_layout import EARLIER, WITHIN
from mnemic.codegen.streamed.pair_passes import Passes
from mnemic.codegen.streamed.streamed_kernel import (
    TILE,
    Shape,
    Written,
    backward,
    chunk,
    forward,
    head,
)
from mnemic.codegen.streamed.substitution import Divided, DividedGradient
from mnemic.codegen.tiled.data import held_of, listed

EARLIER_DOC = "Begin the sums of a part's rows with the pairs before the part, a program a chunk."
MAKING_DOC = "Make the pairs of a part, chunk after chunk, from sums that were begun."
READING_DOC = "Read all pairs: arguments [B, R, H, ...], pairs [M, n, ...] -> the output."
SUMS_DOC = "Sum over the pairs before a chunk what the gradient of made pairs reads."
BACK_DOC = "Add to d of a part's own made pairs what its later rows give, the last chunk first."
BACK_EARLIER_DOC = "Add a part's rows to d of the made pairs before it, a program a block of pairs."
REST_DOC = "Give the gradients of rows through the made pairs, of which d is known."
BLOCKS_DOC = "Add to d of the other pairs what rows give through made pairs, a program a block."
READ_DOC = "Give the gradients of what the output reads: arguments, pairs, d_out -> gradients."
READ_BLOCKS_DOC = "Add to d of all pairs what the output's rows give, a program a block of pairs."


class Beginning(Body):
    """Writes sums over earlier pairs, left open for another kernel to go on with."""

    def settled(self, sums: list[Quantity]) -> Iterator[str]:
        """Leave the largest logits open."""
        return iter(())


@dataclass(frozen=True)
class Kernels:
    """The kernels by name, and the module's data of them."""

    written: dict[str, Written]
    data: list[str]

    def joined(self) -> Written:
        """Join the kernels to one text, with the tiles that live at once in the fullest."""
        rows, pairs = zip(*(written.alive for written in self.written.values()), strict=True)
        text = "\n\n".join(written.text for written in self.written.values())
        return Written(text, (max(rows), max(pairs)))


def form_kernels(form: Divided, numbers: dict[str, str], known: frozenset[str]) -> Kernels:
    """Write the kernels of a divided form, its gradient aside."""
    made = Shape("chunk_making", MAKING_DOC, alone=False, part=WITHIN)
    read = Shape("chunk_forward", READING_DOC, alone=True)
    written = {
        "earlier": earlier_sums(form, numbers),
        "making": forward(form.making, numbers, made, known, form.sums),
        "forward": forward(form.reading, numbers, read, frozenset(form.reading.growth)),
    }
    data = ["    earlier=chunk_earlier,", "    making=chunk_making,"]
    data.append(f"    made={form.made!r},")
    return Kernels(written, [*data, *listed("sums", map(held_of, form.sums))])


def earlier_sums(form: Divided, numbers: dict[str, str]) -> Written:
    """Write the kernel that begins a part's sums."""
    found, shape = form.making, Shape("chunk_earlier", EARLIER_DOC, alone=True, part=EARLIER)
    passes = Passes(found)
    body = Beginning(found, passes, numbers, "0", shape.indent, part=EARLIER)
    lines = [*body.passing([passes.inside[held.name] for held in form.sums], {})]
    whole = head(found, shape, [f"handed_{held.name}" for held in form.sums], room=None)
    whole += [*chunk(found, "", shape), f"{body.pad}{TILE}", *lines]
    whole += [f"{body.pad}{store_handed(h, found.say(h.name))}" for h in form.sums]
    return Written("\n".join(whole) + "\n", body.alive)


def gradient_kernels(found: DividedGradient, numbers: dict[str, str]) -> Kernels:
    """Write the kernels of a divided form's gradient, in the order of their launches."""
    read, rest = found.reading, found.rest

    def alone(name: str, doc: str) -> Shape:
        return Shape(name, doc, alone=True)

    def blocks(name: str, doc: str, part: str = "") -> Shape:
        return Shape(name, doc, alone=False, part=part)

    written = {
        "backward": backward(read.rows, read.gradients, numbers,
                             alone("chunk_backward", READ_DOC), read.handed),
        "by_blocks": block_backward(read, numbers,
                                    blocks("chunk_backward_pairs", READ_BLOCKS_DOC)),
    }  # fmt: skip
    if found.before is not None:
        written["before"] = backward(
            found.before, {}, numbers, alone("chunk_back_sums", SUMS_DOC), found.given
        )
    making = Shape("chunk_back_making", BACK_DOC, alone=False, part=WITHIN)
    written |= {
        "back": backward(found.making, {}, numbers, making, found.handed, found.given),
        "back_earlier": block_backward(
            found.earlier, numbers, blocks("chunk_back_earlier", BACK_EARLIER_DOC, EARLIER)
        ),
        "rest": backward(
            rest.rows, rest.gradients, numbers, alone("chunk_back_rest", REST_DOC), rest.handed
        ),
        "rest_pairs": block_backward(rest, numbers, blocks("chunk_back_pairs", BLOCKS_DOC)),
    }
    data = [
        "    back_sums=chunk_back_sums," if found.before is not None else "    back_sums=None,",
        *listed("back_given", map(held_of, found.given)),
        "    back_making=chunk_back_making,",
        "    back_earlier=chunk_back_earlier,",
        *listed("back_handed", map(held_of, found.handed)),
        "    back_rest=chunk_back_rest,",
        "    back_pairs=chunk_back_pairs,",
        *listed("rest_handed", map(held_of, rest.handed)),
        f"    rest_gradients={tuple(rest.gradients)!r},",
        f"    read_gradients={tuple(read.gradients)!r},",
        "    by_blocks=chunk_backward_pairs,",
        *listed("handed", map(held_of, read.handed)),
    ]
    return Kernels(written, data)
