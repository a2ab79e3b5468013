"""Reverse mode on a plan: the gradients of a chunk (or token) as a plan of their own."""

from mnemic.codegen.adjoint.reverse import Adjoint as Adjoint
from mnemic.codegen.adjoint.reverse import adjoint as adjoint
from mnemic.codegen.derivative import NoAdjoint as NoAdjoint
