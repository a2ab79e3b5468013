"""Triton's interpreter, with products as a device makes them, and without its repetitions.

By itself it multiplies numbers of bfloat16 as the integers that hold them, and operands of a TF32
product in float32; and it prepares Triton's whole language anew at every call of a function, which
takes more time than all numbers do, as does what it looks up about the types of tiles.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import RLock
from typing import Any
from unittest.mock import patch

from . import versions


@contextmanager
def products() -> Iterator[None]:
    """Round, inside, the operands of products of 16 bits and of TF32 as a device does, and sum in
    float32; change nothing where nothing is interpreted."""
    if not versions.interpreting():
        yield
        return
    from triton.runtime.interpreter import InterpreterBuilder

    plain = InterpreterBuilder.create_dot

    def create_dot(self: Any, left: Any, right: Any, sums: Any, precision: Any, *rest: Any) -> Any:
        operands = (_operand(x, str(precision)) for x in (left, right))
        return plain(self, *operands, sums, precision, *rest)

    with patch.object(InterpreterBuilder, "create_dot", create_dot):
        yield


LAUNCHING = RLock()
"""Triton's interpreter changes its language while it runs, for all threads."""


@contextmanager
def prepared_once() -> Iterator[None]:
    """Prepare the language once for every module of functions inside, one launch of one thread;
    leave that to Triton where it prepares in another way."""
    from triton.runtime import interpreter

    with LAUNCHING:
        prepare: Any = getattr(interpreter, "_patch_lang", None)
        done: dict[int, Any] = {}

        def once(function: Any) -> Any:
            module = id(function.__globals__)
            if module not in done:
                done[module] = prepare(function)
            return done[module]

        with ExitStack() as changed:
            if prepare:
                changed.enter_context(patch.object(interpreter, "_patch_lang", once))
            for owner, name, new in (*_unguarded(interpreter), *_known_types()):
                changed.enter_context(patch.object(owner, name, new))
            yield


def _unguarded(interpreter: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield the patch (owner, name, value) by which sums of integers, which are offsets, are not
    checked in 64 bits: a device does not look either, and what is interpreted is small."""
    builder = getattr(interpreter, "interpreter_builder", None)
    options: Any = getattr(builder, "options", None)
    if hasattr(options, "sanitize_overflow"):
        yield builder, "options", replace(options, sanitize_overflow=False)


def _known_types() -> Iterator[tuple[Any, str, Any]]:
    """Yield patches (owner, name, value): a tile's type is made once, and stands for its own IR."""
    from triton.language import core

    made: dict[tuple[str, tuple[int, ...]], Any] = {}

    def with_element_ty(self: Any, scalar: Any) -> Any:
        if scalar.is_ptr():
            return core.block_type(scalar, self.shape)
        key = (scalar.name, self.shape)
        if key not in made:
            made[key] = core.block_type(scalar, self.shape)
        return made[key]

    yield core.block_type, "with_element_ty", with_element_ty
    yield core.block_type, "to_ir", lambda self, builder: self


def _operand(x: Any, precision: str) -> Any:
    """Return an operand in float32 with the numbers that a product sees; others as they are."""
    import numpy as np
    from triton.language import float32
    from triton.runtime.interpreter import TensorHandle

    kind = str(x.dtype.scalar)
    if kind == "bf16" and x.data.dtype == np.uint16:
        return TensorHandle((x.data.astype(np.uint32) << 16).view(np.float32), float32)
    if kind == "fp16":
        return TensorHandle(x.data.astype(np.float32), float32)
    if kind == "fp32" and precision.upper().endswith(".TF32"):
        return TensorHandle(tf32(x.data), float32)
    return x


def tf32(x: Any) -> Any:
    """Round an array to ten bits behind the leading one, halves away from zero."""
    import numpy as np

    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
