"""Several workers on a PostgreSQL server, one of them killed in the midst of a trial."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import optuna
import pytest
from postgres import programs, server, until

from mnemic.search.space.space import load_space
from mnemic.search.study.records import DUPLICATE, record
from mnemic.search.study.search import open_search
from mnemic.search.study.storage import Beat
from mnemic.search.study.worker import work_on

pytestmark = pytest.mark.skipif(programs() is None, reason="needs Debian's package postgresql")

TRIALS = 4


def worker(space: Path, run: Path, url: str) -> "subprocess.Popen[bytes]":
    script = Path(__file__).with_name("one_worker.py")
    command = [sys.executable, str(script), str(space), str(run), url]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"},
                            stderr=subprocess.DEVNULL)  # fmt: skip


@pytest.mark.full
def test_a_worker_is_killed_in_the_midst_of_a_trial(tmp_path, space_file):
    """No trial is lost, none is counted twice; all that was asked for is done."""
    text = space_file.read_text().replace("trials: 4", f"trials: {TRIALS}")
    space_file.write_text(text.replace("{steps: 4, keep: 0.5}", "{steps: 60, keep: 0.9}"))
    with server() as url:
        search = open_search(load_space(space_file), tmp_path / "here", url, Beat(1, 4))
        first = worker(space_file, tmp_path / "first", url)
        second = worker(space_file, tmp_path / "second", url)
        until(lambda: running_in(tmp_path / "first"))
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert second.wait(300) == 0
        time.sleep(6)  # longer than a dead worker's grace
        work_on(search)
        trials = search.study.get_trials()
        search.close()
    assert_whole([record(trial) for trial in trials], trials)


def running_in(run: Path) -> bool:
    """Whether a training of this worker has begun, and none of its runs is over."""
    return any(run.glob("runs/*/*/mnemic-run.json")) and not any(run.glob("runs/*/*/run.json"))


def assert_whole(records, trials):
    dead = [r for r in records if r.state is optuna.trial.TrialState.FAIL and r.kind is None]
    assert len(dead) == 1, "the killed worker's trial"
    retried = [t for t in trials if dead[0].number in t.system_attrs.get("retry_history", ())]
    assert len(retried) == 1
    assert retried[0].params == trials[dead[0].number].params
    assert record(retried[0]).kind in ("finished", "stopped", DUPLICATE)
    counted = [r for r in records if r.counts]
    assert TRIALS <= len(counted) <= TRIALS + 1
    assert dead[0] not in counted
    rules = Counter(r.identity for r in counted)
    assert max(rules.values()) <= 2, "only two that ran at the same time may be the same rule"
    assert all(r.state.is_finished() for r in records)
