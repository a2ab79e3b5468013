"""A grid whose workers begin at once, on each kind of storage."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from postgres import programs, server

from mnemic.dsl.hashing import spec_hash
from mnemic.search.space.space import load_space
from mnemic.search.study import queue
from mnemic.search.study import search as opened
from mnemic.search.study.search import open_search
from mnemic.search.study.trial import End, _Trial
from mnemic.search.study.worker import work_on


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """Where the study is kept."""
    if request.param == "sqlite":
        yield None
    elif programs() is None:
        pytest.skip("needs Debian's package postgresql")
    else:
        with server() as found:
            yield found


@pytest.mark.some(1)
def test_workers_that_begin_at_once_walk_a_grid_once(
    space_file: Path, tmp_path: Path, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each opens the search that none has made yet; no point is left out or done twice."""

    def to_the_end(self: _Trial) -> End:
        point = self.search.space.point(self.suggest)
        self.keep("look", {"identity": spec_hash(point.spec)})
        return End("finished", values=(0.5,))

    monkeypatch.setattr(_Trial, "to_the_end", to_the_end)
    monkeypatch.setattr(queue, "AT_A_TIME", 5)
    losses = ", {kind: huber, delta: {range: [0.1, 10], log: true}}"
    text = space_file.read_text().replace(losses, "")
    space_file.write_text(text.replace("trials: 4", "trials: 100\n  sampler: grid"))
    space = load_space(space_file)
    together = threading.Barrier(4)

    def work() -> str:
        together.wait()
        search = open_search(space, tmp_path / "run", url, tell=str)
        try:
            return work_on(search).reason
        finally:
            search.close()

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work) for _ in range(4)]
        assert {worker.result() for worker in workers} == {"every point of the grid"}
    search = open_search(space, tmp_path / "run", url, tell=str)
    done = [tuple(sorted(one.answers.items())) for one in search.records()]
    search.close()
    assert len(done) == len(set(done)) == space.size == 24


def test_a_grid_goes_on_behind_points_that_are_no_specs(
    space_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: _Trial) -> End:
        self.search.space.point(self.suggest)
        return End("invalid")

    monkeypatch.setattr(_Trial, "to_the_end", refused)
    monkeypatch.setattr(opened, "FRUITLESS", 2)
    text = space_file.read_text().replace(
        ", {kind: huber, delta: {range: [0.1, 10], log: true}}", ""
    )
    space_file.write_text(text.replace("trials: 4", "trials: 100\n  sampler: grid"))
    search = open_search(load_space(space_file), tmp_path / "run", tell=str)
    try:
        assert work_on(search).reason == "every point of the grid"
        assert len(search.records()) == search.space.size
    finally:
        search.close()
