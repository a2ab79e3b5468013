"""A chunk's plan divided at what carried states reach: parts in parallel, and a scan between."""

from mnemic.codegen.tiled.divided.two_kernels import Divided as Divided
from mnemic.codegen.tiled.divided.two_kernels import divided as divided
