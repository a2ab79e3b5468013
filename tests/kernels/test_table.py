"""The tables under benchmarks/kernels: what one spec a class compiles to is what they say.

The whole of a table is written anew by ``mnemic kernels --target sm_90 -o …``, for all specs.
Digests of sources are not compared: what compiles to the same may be made from other text.
"""

from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest
from classes import KINDS, kinds, representative

from mnemic.errors import UsageError
from mnemic.kernels import build, table
from mnemic.kernels.jobs import Job, compile_folder
from mnemic.kernels.resumed_table import made_with, parsed

TABLES = Path(__file__).parents[2] / "benchmarks" / "kernels"


@cache
def kept(target: str) -> str:
    """The table of the repository."""
    return (TABLES / f"{target}.md").read_text(encoding="utf-8")


def compiled(job: dict) -> dict:
    return compile_folder(job)


def test_the_classes_are_all_there() -> None:
    assert set(KINDS) == set(kinds())


@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_every_spec_is_in_the_table(target: str) -> None:
    listed = {name for name, _ in parsed(kept(target))}
    assert listed == {name for found in kinds().values() for name in found}


@pytest.mark.few
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_spec_of_each_class_compiles_to_what_is_told(
    compiler, request: pytest.FixtureRequest, kind: str, target: str
) -> None:
    """In the first tier only where the table has another digest of the kernels' source."""
    name = representative(kind)
    if not made_with(kept(target), build.versions()):
        pytest.skip(f"the table is not of triton {build.versions()['triton']}, which is here")
    (job,) = build.jobs([name], target, (64,))
    told = parsed(kept(target))[name, "64"]
    known = {row[table.SOURCE] for row in told} == {job.source}
    if known and request.config.getoption("tier") == "first":
        return  # compiled when the table was written
    rows = [row[:-1] for row in table.rows(job, compiler(compiled, job=asdict(job)))]
    assert rows == [row[:-1] for row in told]


def kernel(**changed: object) -> dict:
    """A compiled kernel as a worker tells it."""
    none = dict.fromkeys(("stack", "spill_stores", "spill_loads", "local_loads", "local_stores"), 0)
    taken = {"registers": 128, "shared": 5000, "tensor": {"HGMMA": 12}, "instructions": 700, **none}
    told = {
        "name": "chunk_forward",
        "constants": {"C": 64, "KEEP": True, "P": "bf16"},
        "num_warps": 4,
        "num_stages": 2,
        "resources": taken,
        "blocks": 4,
        "troubles": [],
    }
    return {**told, **changed}


def test_rows_as_markdown() -> None:
    job = Job("one", "affine", "/nowhere", "sm_90", source="5e1f")
    passes = {
        "forward": {
            "kernels": [kernel(), kernel(troubles=["spills 8 bytes"])],
            "error": None,
            "refused": None,
        },
        "backward": {"kernels": [], "error": "RuntimeError: a | b", "refused": None},
    }
    found = list(table.rows(job, {"missing": None, "passes": passes}))
    text = table.markdown(found, "sm_90", {"triton": "3.9.0"})
    assert text.splitlines()[-3:] == [
        "| one | affine | 64 | forward | chunk_forward | C=64 | 4 | 2 | 128 | 0 | 5000 | 12 HGMMA "
        "| 0 | 4 |  | 5e1f |",
        "| one | affine | 64 | forward | chunk_forward | C=64 | 4 | 2 | 128 | 0 | 5000 | 12 HGMMA "
        "| 0 | 4 | spills 8 bytes | 5e1f |",
        "| one | affine | 64 | backward |  |  |  |  |  |  |  |  |  |  | RuntimeError: a \\| b "
        "| 5e1f |",
    ]
    assert parsed(text) == {("one", "64"): found}
    assert table.wrong(found) == [
        "one d = 64 forward: spills 8 bytes", "one d = 64 backward: RuntimeError: a | b",
    ]  # fmt: skip
    assert table.failed(found) == ["one d = 64 backward: RuntimeError: a | b"]
    assert made_with(text, {"triton": "3.9.0"})
    assert not made_with(text, {"triton": "3.9.1"})


def test_no_form_is_told() -> None:
    job = Job("one", "sequential", "/nowhere", "sm_90")
    (row,) = table.rows(job, {"missing": "no fused form", "passes": {}})
    assert table.line(row).endswith("|  | no fused form |  |")
    (cells,) = table.counts(job, {"missing": "no fused form", "passes": {}})
    assert (cells[0], cells[-1], len(cells)) == ("one", "no fused form", len(table.COUNTED))


def test_counts_against_the_peaks() -> None:
    """An H100's memory moves 3350 bytes in a nanosecond; its tensor cores do 989000 operations."""
    job = Job("one", "affine", "/nowhere", "sm_90")
    told = {
        "moved": 3350.0,
        "floor": 1675.0,
        "products": 1_978_000.0,
        "error": None,
        "refused": None,
    }
    (cells,) = table.counts(job, {"missing": None, "passes": {"forward": told}})
    assert cells[4:] == ("3350", "1675", "2.00", "1978000", "2.00", "")
    assert table.counts_markdown([cells], "sm_90").splitlines()[-1].startswith("| one | affine")


def test_a_target_that_is_not_known() -> None:
    with pytest.raises(UsageError, match="read 'sm_10'"):
        list(build.jobs(["gla"], "sm_10"))
