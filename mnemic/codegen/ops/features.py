"""Feature maps of single tokens, and keys that are turned."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import TOKEN, Operation, Sample, Tile
from mnemic.codegen.ops.pulled import whole


def turned(at: At) -> None:
    """Differentiate [x cos Ω, x sin Ω]: dx is d turned back by Ω, dΩ is x times d by Ω + π/2."""
    x, angle = at.arguments
    at.give_call(x, "turned_back", at.d, angle)
    if at.wants(angle):
        axes = at.axes(angle)
        further = at.map(f"{angle}_further", axes, "a + pi/2", a=angle)
        back = at.call(f"{at.d}_further", axes, "turned_back", at.d, further)
        at.give_map(angle, "x*b", x=x, b=back)


# fmt: off
OPERATIONS = (
    Operation(
        "features", "*, *... -> *", by_token=True, adjoint=whole,
        sample=Sample("tk -> tK", options={"kind": "taylor", "order": 1}),
    ),
    Operation("turned", "*, * -> *", by_token=True, adjoint=turned, sample=Sample("tk, tk -> tD")),
    Operation("turned_back", "*, * -> *", sample=Sample("tD, tk -> tk")),
    Operation(
        "rotated", "k, k,  -> k", mixes="k", tile=Tile(frozenset({TOKEN}), extras=("width:k",)),
        in_pytorch=False, sample=None,
    ),
)
# fmt: on
