"""A worker that was killed leaves its trial to the next one on its machine, at once."""

import os
import subprocess
import sys
import time

import pytest
from optuna.trial import TrialState
from sqlalchemy import text

from mnemic.search.space.space import load_space
from mnemic.search.study import owners
from mnemic.search.study.records import WORKER
from mnemic.search.study.search import open_search
from mnemic.search.study.storage import Beat
from mnemic.search.study.worker import work_on

KILLED = """
import os, signal, sys
from pathlib import Path
from mnemic.search.space.space import load_space
from mnemic.search.study.search import open_search
search = open_search(load_space(sys.argv[1]), Path(sys.argv[2]))
with search.beating(search.ask()):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_trial_of_a_killed_worker_is_done_again_at_once(tmp_path, space_file):
    command = [sys.executable, "-c", KILLED, str(space_file), str(tmp_path / "run")]
    assert subprocess.run(command, check=False).returncode == -9
    search = open_search(load_space(space_file), tmp_path / "run", beat=Beat())
    (left,) = search.records()
    assert left.state is TrialState.RUNNING
    assert search.wanted() is None
    assert [one.state for one in search.records()] == [TrialState.FAIL, TrialState.WAITING]
    assert sum(one.counts for one in search.records()) == 0
    again = search.ask()
    assert again.number == 1
    assert search.wanted() is None  # what the dead one left does not tell of this process
    assert [one.state for one in search.records()] == [TrialState.FAIL, TrialState.RUNNING]
    assert search.records()[1].history == 1
    search.close()


def test_a_worker_that_died_before_the_clock_went_back_is_found_after_a_grace(tmp_path, space_file):
    """Its last heartbeat lies an hour ahead; on another machine nothing else tells of it."""
    search = open_search(load_space(space_file), tmp_path / "run", beat=Beat(1, 1))
    trial = search.ask()
    trial.set_user_attr(WORKER, {**owners.owner(trial.number), "machine": "another"})
    search.storage.record_heartbeat(trial._trial_id)
    with search.storage.engine.begin() as connection:
        connection.execute(
            text("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '+1 hour')")
        )
    assert search.wanted() is None
    assert [one.state for one in search.records()] == [TrialState.RUNNING], "it may well live"
    time.sleep(3)
    assert search.wanted() is None
    assert [one.state for one in search.records()] == [TrialState.FAIL, TrialState.WAITING]
    search.close()


@pytest.mark.parametrize("beats", [0, 1])
def test_a_worker_that_died_before_it_said_so_is_found_after_a_grace(tmp_path, space_file, beats):
    """Killed between taking a trial and telling of it, or its first heartbeat: nothing is lost."""
    search = open_search(load_space(space_file), tmp_path / "run", beat=Beat(1, 1))
    trial = search.study.ask()
    if beats:  # told of by another machine, but without a heartbeat
        trial.set_user_attr(WORKER, {**owners.owner(trial.number), "machine": "another"})
    assert search.unclaimed() == (not beats)
    assert search.wanted() is None
    assert [one.state for one in search.records()] == [TrialState.RUNNING], "it may well live"
    time.sleep(3)
    assert search.wanted() is None
    assert [one.state for one in search.records()] == [TrialState.FAIL, TrialState.WAITING]
    assert not search.unclaimed()
    search.close()


@pytest.mark.full
def test_a_search_does_not_end_while_a_trial_is_nobodys(tmp_path, space_file):
    """The last trial was taken by a worker that died at once: another does it in the end."""
    space = load_space(space_file)
    search = open_search(space, tmp_path / "run", beat=Beat(1, 1))
    for _ in range(space.settings.trials):
        search.study.ask()
    done = work_on(search)
    records = search.records()
    assert all(one.state.is_finished() for one in records)
    assert sum(one.counts for one in records) >= space.settings.trials
    assert done.trials >= space.settings.trials
    search.close()


def test_only_a_process_that_is_certain_to_have_ended_is_dead():
    own = owners.owner(3)
    assert own["pid"] == os.getpid()
    assert not owners.dead(own, 3)
    assert not owners.dead(None, 3)
    assert owners.dead({**own, "started": "1"}, 3)  # another process has its number now
    assert not owners.dead({**own, "started": "1"}, 4)
    assert not owners.dead({**own, "started": "1", "machine": "another"}, 3)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        told = {**own, "pid": child.pid, "started": owners._started(child.pid)}
        assert not owners.dead(told, 3)
        child.kill()
    assert owners.dead(told, 3)


def test_where_the_system_tells_no_start_a_number_is_all(monkeypatch, tmp_path):
    monkeypatch.setattr(owners, "PROC", tmp_path)
    own = {"machine": owners.machine(), "pid": os.getpid(), "started": "unknown", "trial": 0}
    assert not owners.dead(own, 0)
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    assert owners.dead({**own, "pid": gone.pid}, 0)
