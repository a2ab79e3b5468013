"""Where rows lie is computed so that NVIDIA's assembler gets it right.

``(t · stride) · width`` made LLVM multiply the thread's number, masked, by the stride and shift the
product by less than for other rows; ptxas of CUDA 12.8, 12.9 and 13.0 shifts both alike (seen on an
H200 with dpfp and cosformer at 128 channels, whose features are 256: a warp read rows 32 times as
far). The distance of two rows is one number now, by which a row's own number is multiplied.
"""

import re
from typing import Any

import torch

from mnemic import pipeline
from mnemic.kernels.limits import target
from mnemic.kernels.offline import compiling

THREAD = re.compile(r"mov\.u32 \t(%r\d+), %tid\.x;")
MASKED = re.compile(r"and\.b32\s+\t?(%r\d+), (%r\d+), (\d+);")
TIMES = re.compile(r"mul\.lo\.s32\s+\t?%r\d+, (%r\d+), (%r\d+);")


def masked_products(ptx: str) -> list[str]:
    """Products of a number and the high bits of a thread's, by which a warp is told from others."""
    threads = set(THREAD.findall(ptx))
    warps = {
        found for found, of, mask in MASKED.findall(ptx)
        if of in threads and int(mask) and int(mask) % 32 == 0
    }  # fmt: skip
    return [str(pair) for pair in TIMES.findall(ptx) if warps & set(pair)]


def texts(name: str, width: int) -> dict[str, str]:
    """PTX of a form's kernels, cut as several, by name."""
    from triton.runtime.jit import JITFunction

    module = pipeline.compile(name).module
    fused = __import__(f"{module.__name__}.support.fused", fromlist=["fused"])
    layer = module.Layer(2 * width, heads=2, key_dim=width, value_dim=width)
    with torch.no_grad():
        given = layer.arguments(torch.randn(1, 128, 2 * width))
    vectors = {"q", "k", "v"}
    given = {n: x.to(torch.bfloat16) if n in vectors else x for n, x in given.items()}
    found: dict[str, str] = {}
    with compiling(target("sm_90")):
        plain = JITFunction.run

        def run(self: Any, *args: Any, **options: Any) -> Any:
            compiled = plain(self, *args, **options)
            found[self.fn.__name__] = compiled.asm["ptx"]
            return compiled

        JITFunction.run = run
        try:
            with fused.sweeping(always=False), fused.in_several(always=True), torch.no_grad():
                module.rule(**given, form="triton")
        finally:
            JITFunction.run = plain
    assert found
    return found


def test_no_product_of_a_threads_high_bits(compiler) -> None:
    found = compiler(texts, name="dpfp", width=128)
    assert "chunk_parallel" in found
    assert not {name: wrong for name, text in found.items() if (wrong := masked_products(text))}


def test_such_a_product_is_seen() -> None:
    ptx = "\tmov.u32 \t%r1, %tid.x;\n\tand.b32 \t%r2, %r1, 96;\n\tmul.lo.s32 \t%r96, %r2, %r57;\n"
    assert masked_products(ptx) == ["('%r2', '%r57')"]
