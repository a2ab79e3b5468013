"""Partial evaluation of a folder's support for what its generated modules declare."""

from mnemic.codegen.flat.fold.folder import folded as folded
