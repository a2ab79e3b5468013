"""Memories of layers: every matrix a linear memory of its own, joined by the network's passes."""

from mnemic.codegen.deep.start import build as start

__all__ = ["start"]
