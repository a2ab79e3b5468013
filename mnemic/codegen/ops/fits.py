"""Fits to kept pairs: similarities, interpolation, local means and lines, attention."""

from mnemic.codegen.ops.operation import Operation, Sample
from mnemic.codegen.ops.pulled import whole

SIMILARITY = {
    "similarity": "def similarity(kq, kk, qq):\n    return torch.exp(kq / 4 - kk / 9 - qq / 8)\n"
}
NAMED: dict[str, object] = {"similarity": "similarity"}
WEIGHTED: dict[str, object] = {**NAMED, "logs": False, "decayed": False}
SOLVER: dict[str, object] = {"iterations": 40, "tolerance": 1e-14}

# fmt: off
OPERATIONS = (
    Operation(
        "kernel_rows", "tk, nk -> tn", adjoint=whole,
        sample=Sample(options=NAMED, functions=SIMILARITY),
    ),
    Operation(
        "kernel_row", "k, nk -> n", adjoint=whole,
        sample=Sample(options=NAMED, functions=SIMILARITY),
    ),
    Operation(
        "kernel_self", "k -> ", adjoint=whole,
        sample=Sample(options={**NAMED, "ridge": 0.1}, functions=SIMILARITY),
    ),
    Operation("half_solved", "nn, n -> n", adjoint=whole, sample=Sample(kinds=("factor",))),
    Operation("half_solved_rows", "nn, tn -> tn", adjoint=whole, sample=Sample(kinds=("factor",))),
    Operation("pivot", ", n -> ", adjoint=whole, sample=Sample(kinds=("vast",))),
    Operation(
        "bordered", "nn, n,  -> nn", adjoint=whole,
        sample=Sample("nn, n,  -> MM", kinds=("factor", "", "positive")),
    ),
    Operation(
        "next_solved", "v, n, nv,  -> v", adjoint=whole,
        sample=Sample(kinds=("", "", "", "positive")),
    ),
    Operation(
        "grown_factor", "nn, tn, ts -> nn", adjoint=whole,
        sample=Sample(
            "nn, tn, tt -> NN", kinds=("factor", "", "vast definite"), options={"ridge": 0.1}
        ),
    ),
    Operation(
        "solved_behind", "nn, nv, tv -> tv", adjoint=whole,
        sample=Sample("NN, nv, tv -> tv", kinds=("factor",)),
    ),
    Operation("prefix_reads", "tn, nv -> tv", adjoint=whole),
    Operation(
        "local_means", "tk, nk, nv, *... -> tv", adjoint=whole,
        sample=Sample("tk, Nk, Nv -> tv", options=WEIGHTED, functions=SIMILARITY),
    ),
    Operation(
        "local_linears", "tk, nk, nv, *, *... -> tv", adjoint=whole,
        untiled="a system of every row that is factored (conjugate gradients would have a kernel)",
        sample=Sample(
            "tk, Nk, Nv, t -> tv", kinds=("", "", "", "positive"),
            options={**WEIGHTED, **SOLVER}, functions=SIMILARITY, tolerance=1e-8,
        ),
    ),
    Operation(
        "local_linear", "n, nk, nv, k,  -> v", adjoint=whole,
        sample=Sample(kinds=("positive", "", "", "", "positive")),
    ),
    Operation(
        "attention", "tk, nk, nv -> tv", adjoint=whole, sample=Sample("tk, Nk, Nv -> tv"),
        untiled="PyTorch's own attention is its kernel",
    ),
    Operation("beside", "*k, * -> *k", adjoint=whole, sample=Sample("tk, t -> tK")),
)
# fmt: on
