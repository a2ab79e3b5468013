"""Products of memories, vectors and rows."""

from mnemic.codegen.ops.at import At
from mnemic.codegen.ops.operation import EVERYWHERE, TOKEN, Operation, Tile


def recall(at: At) -> None:
    """Differentiate y = M x: dM = d xᵀ, dx = Mᵀ d."""
    memory, x = at.arguments
    at.give_call(memory, "outer", at.d, x)
    at.give_call(x, "pull", memory, at.d)


def pull(at: At) -> None:
    """Differentiate y = Mᵀ x: dM = x dᵀ, dx = M d."""
    memory, x = at.arguments
    at.give_call(memory, "outer", x, at.d)
    at.give_call(x, "recall", memory, at.d)


def recall_rows(at: At) -> None:
    """Differentiate Y = X Mᵀ: dM = dᵀ X, dX = d M."""
    memory, x = at.arguments
    at.give_product(memory, at.d, x, "l")
    at.give_product(x, at.d, memory)


def pull_rows(at: At) -> None:
    """Differentiate Y = X M: dM = Xᵀ d, dX = d Mᵀ."""
    memory, x = at.arguments
    at.give_product(memory, x, at.d, "l")
    at.give_product(x, at.d, memory, "r")


def recall_row(at: At) -> None:
    """Differentiate y_t = n·x_t: dn = Σ_t d_t x_t, dx_t = d_t n."""
    vector, x = at.arguments
    at.give_call(vector, "vector_matrix", at.d, x)
    at.give_call(x, "outer", at.d, vector)


def matrix_rows(at: At) -> None:
    """Differentiate y = M x, M of rows against rows: dM = d xᵀ, dx = Mᵀ d."""
    matrix, x = at.arguments
    at.give_call(matrix, "outer", at.d, x)
    at.give_call(x, "vector_matrix", at.d, matrix)


def vector_matrix(at: At) -> None:
    """Differentiate y = Mᵀ x, M of rows against rows: dM = x dᵀ, dx = M d."""
    x, matrix = at.arguments
    at.give_call(matrix, "outer", x, at.d)
    at.give_call(x, "matrix_rows", matrix, at.d)


def outer(at: At) -> None:
    """Differentiate M = x yᵀ: dx = dM y, dy = dMᵀ x."""
    x, y = at.arguments
    at.give_call(x, "recall", at.d, y)
    at.give_call(y, "pull", at.d, x)


# fmt: off
OPERATIONS = (
    Operation(
        "recall", "vk, k -> v", sums="k", adjoint=recall, tile=Tile(EVERYWHERE), lane="{0} * {1}",
    ),
    Operation(
        "pull", "vk, v -> k", sums="v", adjoint=pull, tile=Tile(EVERYWHERE), lane="{0} * {1}",
    ),
    Operation(
        "recall_rows", "vk, rk -> rv", sums="k", adjoint=recall_rows,
        tile=Tile(frozenset({TOKEN}), extras=("precision",)),
    ),
    Operation(
        "pull_rows", "vk, rv -> rk", sums="v", adjoint=pull_rows,
        tile=Tile(frozenset({TOKEN}), extras=("precision",)),
    ),
    Operation("recall_row", "k, tk -> t", sums="k", adjoint=recall_row, tile=Tile()),
    Operation("matrix_rows", "ts, s -> t", sums="s", adjoint=matrix_rows, tile=Tile()),
    Operation("vector_matrix", "t, ts -> s", sums="t", adjoint=vector_matrix, tile=Tile()),
    Operation(
        "outer", "t, s -> ts", token="v, k -> vk", adjoint=outer, tile=Tile(swapped=True),
        lane="{0} * {1}",
    ),
)
# fmt: on
