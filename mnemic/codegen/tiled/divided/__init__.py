"""A chunk's plan divided into kernels: what no state reaches runs in parallel, the rest is a
scan."""

from mnemic.codegen.tiled.divided.gradient_parts import GradientParts as GradientParts
from mnemic.codegen.tiled.divided.gradient_parts import gradient_parts as gradient_parts
from mnemic.codegen.tiled.divided.running_sums import running_sums as running_sums
from mnemic.codegen.tiled.divided.two_kernels import Divided as Divided
from mnemic.codegen.tiled.divided.two_kernels import divided as divided
