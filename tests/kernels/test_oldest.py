"""Kernels of one spec a class compile on the oldest Triton that mnemic allows.

``scripts/setup.sh test`` installs that version into a folder of its own beside the newest one;
``scripts/tritons.sh`` runs this file with every version between, which ``TRITON_FOLDER`` tells.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from classes import KINDS, representative
from processes import PATHS, Call
from tiers import first_only

from mnemic import pipeline
from mnemic.codegen.support.versions import OLDEST
from mnemic.kernels.jobs import Subject
from mnemic.kernels.limits import target
from mnemic.kernels.offline import compiling
from mnemic.kernels.worker import COMPILING, worker

FOLDER = Path(os.environ.get("TRITON_FOLDER", Path(sys.prefix) / "oldest"))
VERSION = os.environ.get("TRITON_VERSION", ".".join(map(str, OLDEST)))


@pytest.fixture(scope="session")
def oldest() -> Iterator[Call]:
    """Call a function of this file in a process that compiles with the oldest Triton."""
    if not (FOLDER / "triton").is_dir():
        pytest.skip(f"no Triton {VERSION} in {FOLDER}: run sh scripts/setup.sh test")
    with worker(dict(COMPILING), FOLDER, *PATHS) as process:
        yield lambda function, **given: process.call(Path(__file__), function.__name__, **given)


def compiled(name: str) -> dict:
    """Compile the forward and backward kernels of a spec for sm_90; return their names."""
    import triton

    subject = Subject.of(pipeline.compile(name).module, 64, torch.bfloat16)
    with compiling(target("sm_90")) as log:
        subject.backward()
    return {"triton": triton.__version__, "kernels": [kernel.name for kernel in log.kernels]}


@pytest.mark.parametrize("kind", first_only(KINDS, "affine", "kernelised", "nonparametric"))
def test_a_spec_of_each_class_compiles(oldest: Call, kind: str) -> None:
    found = oldest(compiled, name=representative(kind))
    assert found["triton"] == VERSION
    assert any(kernel.endswith(("_forward", "_scan")) for kernel in found["kernels"])
    assert any(kernel.endswith(("_backward", "_back_rest")) for kernel in found["kernels"])


def test_the_package_asks_for_it() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert re.findall(r'"triton>=([\d.]+);', text) == [".".join(map(str, OLDEST[:2]))]
