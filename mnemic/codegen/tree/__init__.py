"""Read-outs that weigh the levels of a Fenwick tree apart (``compiler.shares``).

``recurrent``, ``chunk`` and ``reading`` plan PyTorch's forms with all levels as one state;
``plans`` gives one level as a memory of its own, which is what fused kernels run.
"""

from mnemic.codegen.tree.one_level import plans
from mnemic.codegen.tree.tree_forms import chunk, reading, recurrent

__all__ = ["chunk", "plans", "reading", "recurrent"]
