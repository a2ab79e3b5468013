"""Trees of levels: a memory a level, merged as tokens come."""

from mnemic.codegen.ops.operation import Operation
from mnemic.codegen.ops.pulled import whole

# fmt: off
OPERATIONS = (
    Operation("every_level", " -> l", adjoint=whole),
    Operation("recall_levels", "lvk, k -> lv", sums="k", adjoint=whole),
    Operation("weigh_levels", "v, lv, l -> v", adjoint=whole),
    Operation("read_levels", "lvk, k, l -> v", sums="lk", adjoint=whole),
    Operation("recall_buckets", "tk, lvk, tl, ~ -> tv", adjoint=whole),
    Operation("through_transition", "lvk, kk, ~sk, ~ -> lvk", adjoint=whole),
    Operation("merged", "lvk, vk, ~ -> lvk", adjoint=whole),
)
# fmt: on
