"""A chunk's plan divided at what carried states reach: parts in parallel, and a scan between."""

from mnemic.codegen.tiled.divided.form import Divided as Divided
from mnemic.codegen.tiled.divided.form import divided as divided
