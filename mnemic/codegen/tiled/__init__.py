"""Plans as Triton kernels: every quantity one line on tiles, the states on chip."""

from mnemic.codegen.tiled.source import HEADER as HEADER
from mnemic.codegen.tiled.source import Form as Form
from mnemic.codegen.tiled.source import Kernels as Kernels
from mnemic.codegen.tiled.source import Levels as Levels
from mnemic.codegen.tiled.source import kernels as kernels
from mnemic.codegen.tiled.source import tree as tree
