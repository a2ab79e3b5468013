"""A layer's whole token as one Triton kernel: its prologue, the update, the read-out, the norm."""

from mnemic.codegen.step.step_source import HEADER as HEADER
from mnemic.codegen.step.step_source import Stepped as Stepped
from mnemic.codegen.step.step_source import stepped as stepped
