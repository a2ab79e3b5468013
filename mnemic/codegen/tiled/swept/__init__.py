"""Kernels that loop over blocks of their memories, for memories that do not fit into registers."""

from mnemic.codegen.tiled.swept.block_lines import WAIT as WAIT
from mnemic.codegen.tiled.swept.block_lines import loop as loop
from mnemic.codegen.tiled.swept.gradient import backward as backward
from mnemic.codegen.tiled.swept.gradient import of_gradient as of_gradient
from mnemic.codegen.tiled.swept.sections import Load as Load
from mnemic.codegen.tiled.swept.sections import Store as Store
from mnemic.codegen.tiled.swept.spread import spread as spread
from mnemic.codegen.tiled.swept.sweepable_axes import axes as axes
from mnemic.codegen.tiled.swept.sweeps import Sweeps as Sweeps
from mnemic.codegen.tiled.swept.swept_kernel import Form as Form
from mnemic.codegen.tiled.swept.swept_kernel import Forward as Forward
from mnemic.codegen.tiled.swept.swept_kernel import forward as forward
from mnemic.codegen.tiled.swept.swept_kernel import of_form as of_form
