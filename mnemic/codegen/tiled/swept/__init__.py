"""Kernels that go along axes of their memories block by block, where registers do not hold them."""

from mnemic.codegen.tiled.swept.axes import axes as axes
from mnemic.codegen.tiled.swept.form import Form as Form
from mnemic.codegen.tiled.swept.form import Forward as Forward
from mnemic.codegen.tiled.swept.form import forward as forward
from mnemic.codegen.tiled.swept.form import of_form as of_form
from mnemic.codegen.tiled.swept.gradient import backward as backward
from mnemic.codegen.tiled.swept.gradient import of_gradient as of_gradient
from mnemic.codegen.tiled.swept.printer import WAIT as WAIT
from mnemic.codegen.tiled.swept.printer import loop as loop
from mnemic.codegen.tiled.swept.spread import spread as spread
from mnemic.codegen.tiled.swept.steps import Load as Load
from mnemic.codegen.tiled.swept.steps import Store as Store
from mnemic.codegen.tiled.swept.sweeps import Sweeps as Sweeps
