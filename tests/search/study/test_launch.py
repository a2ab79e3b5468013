"""A worker on a cluster that is told that its time is over: the search under it saves."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest
from small_space import SPACE

from mnemic.search.space.space import load_space
from mnemic.search.study.launch import worker
from mnemic.search.study.search import open_search

JOB = """
import signal, sys

def over(number, frame):
    raise RuntimeError("the time is over")  # as submitit does

signal.signal(signal.SIGUSR2, over)
from mnemic.search.study.launch import worker
worker(sys.argv[1:])
"""
"""What stands for a job: a process that hears the cluster's signal."""


def test_a_search_that_fails_fails_its_job_and_leaves_the_signals_as_they_were(tmp_path):
    before = [signal.getsignal(one) for one in (signal.SIGUSR1, signal.SIGUSR2)]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        worker([str(tmp_path / "none.yaml")])
    assert caught.value.returncode == 2
    assert [signal.getsignal(one) for one in (signal.SIGUSR1, signal.SIGUSR2)] == before


@pytest.mark.full
def test_a_worker_whose_time_is_over_saves_and_puts_its_trial_back(tmp_path):
    space, run = tmp_path / "space.yaml", tmp_path / "run"
    text = SPACE.replace("{steps: 8, seeds: 2}", "{steps: 2000, seeds: 2}")
    space.write_text(text.replace("{steps: 4, keep: 0.5}, ", ""), encoding="utf-8")
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, str(space), "--run", str(run)],
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(run.glob("runs/*/*/curve.csv")):
        assert job.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(job.pid, signal.SIGUSR2)  # as a cluster does: every process of the job hears it
    _, said = job.communicate(timeout=60)
    assert "the time is over" in said
    with closing(open_search(load_space(space), run, tell=lambda _: None)) as search:
        first, waiting = search.records()
        assert (first.kind, waiting.state.name) == ("interrupted", "WAITING")
    assert list(run.glob("runs/*/*/checkpoint.pt"))
