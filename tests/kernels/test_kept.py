"""A table that is gone on with: what it has, what it lets go of, and what is not its own."""

from dataclasses import replace
from pathlib import Path

import pytest

from mnemic.errors import UsageError
from mnemic.kernels import table
from mnemic.kernels.jobs import Job
from mnemic.kernels.resumed_table import Kept

VERSIONS = {"triton": "3.9.0"}
ONE = Job("one", "affine", "/nowhere", "sm_90", 64, source="5e1f")
NONE = {"missing": "no fused form", "passes": {}}


def read(path: Path, target: str = "sm_90", version: str = "3.9.0") -> Kept:
    return Kept.read(path, target, {"triton": version})


def held(path: Path, *jobs: Job) -> Kept:
    kept = read(path)
    for job in jobs:
        kept.put(job, table.rows(job, NONE))
    return kept


def test_what_is_written_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "sm_90.md"
    wide, other = replace(ONE, width=128), replace(ONE, spec="another")
    held(path, wide, ONE, other)
    again = read(path)
    assert [again.has(job) for job in (ONE, wide, other)] == [True] * 3
    assert [(row[0], row[2]) for found in again.rows.values() for row in found] == [
        ("another", "64"), ("one", "64"), ("one", "128"),
    ]  # fmt: skip
    assert again.of([other, ONE]) == [*again.rows["another", "64"], *again.rows["one", "64"]]
    assert [x.name for x in path.parent.iterdir()] == ["sm_90.md"]


def test_another_source_is_compiled_again(tmp_path: Path) -> None:
    kept = held(tmp_path / "sm_90.md", ONE)
    assert not kept.has(replace(ONE, source="77ab"))
    assert not kept.has(replace(ONE, width=128))


def test_what_could_not_be_compiled_is_tried_again(tmp_path: Path) -> None:
    kept = read(tmp_path / "sm_90.md")
    late = {"missing": "compile_folder: the process ended with -9", "passes": {}, "failed": True}
    kept.put(ONE, table.rows(ONE, late))
    assert not kept.has(ONE)
    assert kept.of([ONE])[0][table.TOLD] == late["missing"]


def test_rows_of_other_versions_are_not_kept(tmp_path: Path) -> None:
    held(tmp_path / "sm_90.md", ONE)
    assert not read(tmp_path / "sm_90.md", version="3.9.1").has(ONE)


def test_specs_that_are_no_more_are_let_go(tmp_path: Path) -> None:
    kept = held(tmp_path / "sm_90.md", ONE, replace(ONE, spec="gone"))
    kept.only(["one"])
    assert list(read(tmp_path / "sm_90.md").rows) == [("one", "64")]


def test_nothing_is_written_without_a_file() -> None:
    kept = Kept(None, "sm_90", VERSIONS)
    kept.put(ONE, table.rows(ONE, NONE))
    assert len(kept.of([ONE])) == 1


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    held(tmp_path / "sm_90.md", ONE)
    with pytest.raises(UsageError, match="begins with '# Kernels compiled for sm_90', not with"):
        read(tmp_path / "sm_90.md", target="sm_80")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "sm_90.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not with '# Kernels compiled for sm_90'"):
        read(tmp_path / "sm_90.md")
