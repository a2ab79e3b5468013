"""Triton's cache, filled on one machine and read on another.

Triton's own keys hold a digest of its whole build, which differs between the wheels of two Pythons
though both compile alike. Here a key is Triton's version, the kernel's source with all that it
calls, the target and the options. Files of a cache name each other by their full paths, so it lies
in the same place on both machines.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

CACHE = Path("/tmp/mnemic-triton")
PACKED = "triton.tar.xz"
"""The cache as it travels, in the folder of the compiled specs."""

KEPT = ("*.cubin", "*.json", "*.ttgir")
"""What a launch reads of a compiled kernel."""


def shared() -> None:
    """Have this process read and write the shared cache: before the first kernel is launched."""
    os.environ["TRITON_CACHE_DIR"] = str(CACHE)
    import triton
    from triton.compiler import compiler
    from triton.runtime import cache, jit

    def key(src: Any, backend: Any, backend_options: Any, env_vars: Any = None) -> str:
        own = (src.hash(), str(backend.target.arch), backend_options.hash())
        return "-".join((triton.__version__, *own))

    for module in (cache, jit, compiler):
        module.get_cache_key = key


def pack(folder: Path) -> int:
    """Pack the cache into a folder of compiled specs; return how many kernels it holds."""
    names = [str(p.relative_to(CACHE)) for kind in KEPT for p in CACHE.rglob(kind)]
    subprocess.run(
        ["tar", "-cJf", str(folder / PACKED), "-C", str(CACHE), "-T", "-"],
        input="\n".join(names), text=True, check=True,
    )  # fmt: skip
    return len({Path(name).parent for name in names})


def unpack(folder: Path) -> int:
    """Unpack what was packed, if anything was; return how many kernels there are."""
    if not (folder / PACKED).exists():
        return 0
    CACHE.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-xJf", str(folder / PACKED), "-C", str(CACHE)], check=True)
    return sum(1 for _ in CACHE.iterdir())
