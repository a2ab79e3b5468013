"""A storage that is gone for a while or for good, and a trial that is no longer the worker's."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from postgres import programs, server, until
from sqlalchemy import Engine, event
from typer.testing import CliRunner

from mnemic.cli.app import app
from mnemic.errors import EnvironmentFailed, UsageError
from mnemic.search.space.space import load_space
from mnemic.search.study import trial as trials
from mnemic.search.study.patience import Patience
from mnemic.search.study.records import KIND
from mnemic.search.study.search import Search, open_search
from mnemic.search.study.storage import Beat, open_storage
from mnemic.search.study.trial import End, do
from mnemic.search.study.worker import work_on

BRIEF = {"seconds": 1.0, "first": 0.02, "longest": 0.1}


def opened(space: Path, folder: Path, said: list[str], **patience: float) -> Search:
    """Open a search that loses patience soon."""
    return open_search(load_space(space), folder, beat=Beat(1, 4), tell=said.append,
                       patience=Patience(**(BRIEF | patience)))  # fmt: skip


@contextmanager
def gone(search: Search, still: Callable[[], bool]) -> Iterator[None]:
    """Let every statement fail, as where the server is away, while ``still`` says so."""

    def fail(*_: object) -> None:
        if still():
            raise sqlite3.OperationalError("server closed the connection unexpectedly")

    event.listen(search.storage.engine, "do_execute", fail)
    try:
        yield
    finally:
        event.remove(search.storage.engine, "do_execute", fail)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that asks for a point, keeps something and finishes at once."""

    def to_the_end(self: trials._Trial) -> End:
        self.search.space.point(self.suggest)
        self.keep("look", {"identity": str(self.trial.number)})
        return End("finished", values=(0.5,))

    monkeypatch.setattr(trials._Trial, "to_the_end", to_the_end)


@pytest.mark.usefixtures("no_training")
def test_a_storage_that_is_gone_for_a_while_is_waited_for(space_file, tmp_path):
    said, failures = [], iter(range(6))
    search = opened(space_file, tmp_path / "run", said, seconds=30.0)
    with gone(search, lambda: next(failures, None) is not None):
        assert work_on(search).reason == "4 trials"
    records = search.records()
    search.close()
    assert [one.kind for one in records] == ["finished"] * 4
    waits = [line for line in said if "storage" in line]
    assert waits[0].startswith("the storage is gone: server closed the connection unexpectedly; ")
    assert waits[-1] == "the storage is back"


@pytest.mark.usefixtures("no_training")
def test_a_storage_that_stays_away_ends_the_worker_with_one_line(space_file, tmp_path, capfd):
    """The trial is kept, and the same call does it when the storage is back."""
    said, taken = [], threading.Event()
    search = opened(space_file, tmp_path / "run", said)
    ask = search.ask

    def asked(repeated: bool) -> optuna.Trial:
        trial = ask(repeated)
        taken.set()
        return trial

    search.ask = asked
    with gone(search, taken.is_set), pytest.raises(EnvironmentFailed) as caught:
        work_on(search)
    search.close()
    assert str(caught.value) == (
        "the storage failed: server closed the connection unexpectedly; its trials are kept: run "
        "the same command when it is back, to continue"
    )
    assert "Traceback" not in capfd.readouterr().err
    again = opened(space_file, tmp_path / "run", said)
    (left,) = again.study.get_trials()
    assert left.state is TrialState.RUNNING
    again.storage.set_trial_state_values(left._trial_id, TrialState.FAIL)  # its process is dead
    assert work_on(again).reason == "4 trials"
    again.close()


def test_a_refusal_is_not_waited_for():
    """Only what may pass by itself is waited for."""
    calls = []

    def refuse() -> None:
        calls.append(1)
        raise optuna.exceptions.StorageInternalError("no such column")

    with pytest.raises(optuna.exceptions.StorageInternalError):
        Patience(**BRIEF).call(refuse)
    assert len(calls) == 1


def test_a_worker_that_is_to_stop_waits_for_nothing(space_file, tmp_path):
    search = opened(space_file, tmp_path / "run", [], seconds=1000.0)
    search.stopping.set()
    with gone(search, lambda: True), pytest.raises(optuna.exceptions.StorageInternalError):
        search.records()
    search.close()


@pytest.mark.parametrize("when", ["asking", "keeping", "telling", "interrupted"])
def test_a_trial_that_another_worker_ended_is_dropped(space_file, tmp_path, monkeypatch, when):
    """It was taken for dead: whatever this worker still has to say of it is not heard."""
    said = []
    search = opened(space_file, tmp_path / "run", said)
    trial = search.ask()

    def end_it() -> None:
        search.storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)

    def to_the_end(self: trials._Trial) -> End:
        if when == "asking":
            end_it()
        self.search.space.point(self.suggest)
        if when == "keeping":
            end_it()
        self.keep("look", {"identity": "x"})
        end_it()
        return End("interrupted") if when == "interrupted" else End("finished", values=(0.5,))

    monkeypatch.setattr(trials._Trial, "to_the_end", to_the_end)
    assert do(search, trial) == End("dropped", "another worker has ended it meanwhile")
    found = search.study.get_trials()
    search.close()
    assert [one.state for one in found] == [TrialState.FAIL], "nothing is put back"
    assert KIND not in found[0].user_attrs


@pytest.mark.parametrize("after", [0, 12, 30])
def test_a_storage_that_breaks_off_while_a_search_is_opened(space_file, tmp_path, after):
    """Whatever statement fails first: one line, and the next call works."""
    options = [str(space_file), "--run", str(tmp_path / "run"), "--report"]
    statements = iter(range(10**6))

    def fail(*_: object) -> None:
        if next(statements) >= after:
            raise sqlite3.DatabaseError("disk I/O error")

    event.listen(Engine, "do_execute", fail)
    try:
        done = CliRunner().invoke(app, ["search", *options])
    finally:
        event.remove(Engine, "do_execute", fail)
    assert (done.exit_code, done.stdout) == (5, ""), done.exception
    assert done.stderr.count("\n") == 1
    assert "disk I/O error" in done.stderr
    opened(space_file, tmp_path / "run", []).close()


def test_tables_of_another_version_of_optuna(space_file, tmp_path):
    opened(space_file, tmp_path / "run", []).close()
    with closing(sqlite3.connect(tmp_path / "run" / "study.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = 'v9.9.9'")
        database.commit()
    with pytest.raises(EnvironmentFailed, match="no longer compatible with the table schema"):
        opened(space_file, tmp_path / "run", [])


@pytest.mark.skipif(programs() is None, reason="needs Debian's package postgresql")
def test_a_search_that_is_refused_leaves_no_connection(space_file, tmp_path):
    import psycopg

    query = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    with server() as url:
        open_search(load_space(space_file), tmp_path / "one", url, tell=str).close()
        space_file.write_text(space_file.read_text().replace("dim: 8", "dim: 16"))
        with pytest.raises(UsageError, match="a study of another space") as caught:
            open_search(load_space(space_file), tmp_path / "two", url, tell=str)
        with psycopg.connect(url) as connection:
            until(lambda: connection.execute(query).fetchone() == (0,), 10)
    assert caught.tb is not None, "what the error holds was held until now"


def test_a_storage_is_opened_without_a_trace_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    place.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    storage = open_storage(f"sqlite:///{place / 'study.db'}", Path(), Beat())
    storage.remove_session()
    storage.engine.dispose()
    assert not list(elsewhere.iterdir())
    assert (place / "study.db").is_file()
