"""Fits to kept pairs: similarities, interpolation, local means and lines, attention."""

from mnemic.codegen.ops.operation import Operation
from mnemic.codegen.ops.pulled import whole

# fmt: off
OPERATIONS = (
    Operation("kernel_rows", "tk, nk -> tn", adjoint=whole),
    Operation("kernel_row", "k, nk -> n", adjoint=whole),
    Operation("kernel_self", "k -> ", adjoint=whole),
    Operation("half_solved", "nn, n -> n", adjoint=whole),
    Operation("half_solved_rows", "nn, tn -> tn", adjoint=whole),
    Operation("pivot", ", n -> ", adjoint=whole),
    Operation("bordered", "nn, n,  -> nn", adjoint=whole),
    Operation("next_solved", "v, n, nv,  -> v", adjoint=whole),
    Operation("grown_factor", "nn, tn, ts -> nn", adjoint=whole),
    Operation("solved_behind", "nn, nv, tv -> tv", adjoint=whole),
    Operation("prefix_reads", "tn, nv -> tv", adjoint=whole),
    Operation("local_means", "tk, nk, nv, *... -> tv", adjoint=whole),
    Operation("local_linears", "tk, nk, nv, *, *... -> tv", adjoint=whole),
    Operation("local_linear", "n, nk, nv, k,  -> v", adjoint=whole),
    Operation("attention", "tk, nk, nv -> tv", adjoint=whole),
    Operation("beside", "*k, * -> *k", adjoint=whole),
)
# fmt: on
