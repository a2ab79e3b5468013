"""Trees of levels: a memory a level, merged as tokens come."""

from mnemic.codegen.ops.operation import Operation, Sample
from mnemic.codegen.ops.pulled import whole

# fmt: off
OPERATIONS = (
    Operation("every_level", " -> l", adjoint=whole, sample=Sample(options={"count": 4})),
    Operation("recall_levels", "lvk, k -> lv", sums="k", adjoint=whole),
    Operation("weigh_levels", "v, lv, l -> v", adjoint=whole),
    Operation("read_levels", "lvk, k, l -> v", sums="lk", adjoint=whole),
    Operation(
        "recall_buckets", "tk, lvk, tl, ~ -> tv", adjoint=whole,
        sample=Sample("tk, lvk, tl, -> tv", kinds=("", "", "", "count")),
    ),
    Operation(
        "through_transition", "lvk, sk, sk, ~ -> lvk", sums="s", adjoint=whole,
        sample=Sample("lvk, tk, tk,  -> lvk", kinds=("", "", "", "count")),
    ),
    Operation(
        "merged", "lvk, vk, ~ -> lvk", adjoint=whole, sample=Sample(kinds=("", "", "count")),
    ),
)
# fmt: on
