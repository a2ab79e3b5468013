"""The leaderboard: forecasts of slow runs, rows with a task missing, what is kept."""

import json
import math
import threading

import pytest

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load
from mnemic.errors import UsageError
from mnemic.search.report import leaderboard as board
from mnemic.search.report.entries import Entry, plain, read
from mnemic.search.report.points import measured_in
from mnemic.search.report.standings import table
from mnemic.search.space.space import load_space
from mnemic.search.study import training
from mnemic.search.study.isolated import Answer, Failure
from mnemic.search.study.training import FORECAST, Clock, Run, TooLong

SPACE = """\
mnemic: 1
name: tiny-board
search:
  tasks: {memorisation: tiny, mqar: tiny}
  model: {dim: 8, layers: 1}
  training: {batch: 4, eval_size: 16, warmup: 2}
  rungs: [{steps: 40, seeds: 2}]
  limits: {seconds: 60}
"""


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return load_space(str(path))


def ticking(monkeypatch, seconds: float) -> None:
    """Let a clock's steps take so long."""
    now = iter(seconds * i for i in range(1000))
    monkeypatch.setattr(training.time, "perf_counter", lambda: next(now))


def through(clock: Clock, steps: int) -> None:
    clock.start(steps, 0)
    for done in range(1, steps + 1):
        clock.step(done, 1.0)


def test_a_run_that_would_take_too_long_ends_after_its_first_steps(monkeypatch):
    ticking(monkeypatch, 2.0)
    clock = Clock(allowed=100.0)
    with pytest.raises(TooLong, match=r"about 200 s of 100 s allowed: 100 steps of 2 s"):
        through(clock, 100)
    assert len(clock.times) == FORECAST


@pytest.mark.parametrize(("allowed", "steps"), [(100.0, 50), (math.inf, 500)])
def test_a_run_that_does_not_goes_on(monkeypatch, allowed, steps):
    ticking(monkeypatch, 2.0)
    clock = Clock(allowed)
    through(clock, steps)
    assert len(clock.times) == steps


def fake(failing: str):
    """In place of processes: one task fails, the others score by their seed."""

    def isolated(function, *arguments, bounds, log, stopping=None):
        if function is board.work.look:
            return Answer(board.Look("x", "affine", 1, 1, 1.0, None))
        job = arguments[0]
        if job.task == failing:
            return Answer(Failure("time", "would take about 900 s"))
        return Answer(Run(job.task, job.seed, 0.5, 0.5 + 0.1 * job.seed, 1.0, 0.1, (), job.key))

    return isolated


def test_a_task_that_fails_leaves_the_others(monkeypatch, space, tmp_path):
    monkeypatch.setattr(board, "isolated", fake("mqar"))
    monkeypatch.setattr(board, "bounds", lambda settings, log: {})
    (entry,) = board.leaderboard(space, ["deltanet"], tmp_path / "run", lambda line: None)
    assert entry.failed == {"mqar": "time: would take about 900 s"}
    assert [(run.task, run.seed) for run in entry.runs] == [
        ("memorisation", 0),
        ("memorisation", 1),
    ]
    assert entry.skill is None, "no mean where a task is missing"
    text = table(space, [entry])
    row = next(line for line in text.splitlines() if line.startswith("|  | deltanet |"))
    assert text.index("## Not on every task") < text.index(row)
    assert row.startswith("|  | deltanet | – | 0.550 ±")
    assert row.endswith("| mqar: time: would take about 900 s |")
    assert board.read_measured(space, ["deltanet"], tmp_path / "run") == [entry]
    (later,) = board.read_measured(space, ["gla"], tmp_path / "run")
    assert "- gla: not yet; the same command goes on" in table(space, [later])
    monkeypatch.setattr(board, "isolated", fake(""))
    (same,) = board.leaderboard(space, ["deltanet"], tmp_path / "run", lambda line: None)
    assert same == entry, "read, not measured"
    (again,) = board.leaderboard(
        space, ["deltanet"], tmp_path / "run", lambda line: None, again=True
    )
    assert again.whole
    assert len(again.runs) == 4
    assert "| 1 | deltanet | 0.550 ±" in table(space, [again])


def test_a_name_that_is_wrong_leaves_kept_results_alone(monkeypatch, space, tmp_path):
    """Results without the file that says whose they are, as those of an older version."""
    monkeypatch.setattr(board, "isolated", fake(""))
    monkeypatch.setattr(board, "bounds", lambda settings, log: {})
    folder = tmp_path / "run"
    board.leaderboard(space, ["deltanet"], folder, lambda line: None)
    (folder / board.SPACES).unlink()
    before = (folder / board.RESULTS).read_bytes()
    with pytest.raises(UsageError, match="deltanett"):
        board.leaderboard(space, ["deltanett"], folder, lambda line: None)
    assert (folder / board.RESULTS).read_bytes() == before
    empty = tmp_path / "empty"
    with pytest.raises(UsageError, match="deltanett"):
        board.leaderboard(space, ["gla", "deltanett"], empty, lambda line: None)
    assert not (empty / board.RESULTS).exists()


def test_runs_outlast_a_look_that_fails(monkeypatch, space, tmp_path):
    """A run without its folder of runs is kept in the entry alone."""
    monkeypatch.setattr(board, "isolated", fake("mqar"))
    monkeypatch.setattr(board, "bounds", lambda settings, log: {})
    folder = tmp_path / "run"
    (first,) = board.leaderboard(space, ["deltanet"], folder, lambda line: None)
    assert first.runs
    monkeypatch.setattr(board, "isolated", lambda *_, **__: Failure("crash", "no compiler"))
    with pytest.raises(UsageError, match="no spec can be trained"):
        board.leaderboard(space, ["deltanet"], folder, lambda line: None, again=True)
    monkeypatch.setattr(board, "isolated", fake("memorisation"))
    (last,) = board.leaderboard(space, ["deltanet"], folder, lambda line: None, again=True)
    assert sorted(run.task for run in last.runs) == ["memorisation"] * 2 + ["mqar"] * 2


@pytest.mark.parametrize("name", ["nlms", "deltanet"])
def test_a_spec_is_kept_with_its_infinite_rate(monkeypatch, space, tmp_path, name):
    """JSON has no infinity, and the rate of nlms is one."""
    monkeypatch.setattr(board, "isolated", fake(""))
    monkeypatch.setattr(board, "bounds", lambda settings, log: {})
    board.leaderboard(space, [name], tmp_path / "run", lambda line: None)
    (point,) = measured_in(str(tmp_path / "run")).points
    assert spec_hash(point.spec) == spec_hash(load(name))


def test_specs_are_trained_side_by_side(monkeypatch, space, tmp_path):
    """Two at a time: each waits for the other to have begun."""
    plain, meeting = fake(""), threading.Barrier(2, timeout=20)

    def isolated(function, *arguments, **options):
        if function is board.work.run_one and arguments[0].task == "mqar":
            meeting.wait()
        return plain(function, *arguments, **options)

    monkeypatch.setattr(board, "isolated", isolated)
    monkeypatch.setattr(board, "bounds", lambda settings, log: {})
    names = ["deltanet", "gla"]
    found = board.leaderboard(space, names, tmp_path / "run", lambda line: None, jobs=2)
    assert [entry.name for entry in found] == names
    assert all(entry.whole for entry in found)
    entries = board.read_measured(space, names, tmp_path / "run")
    assert [entry.whole for entry in entries] == [
        True,
        True,
    ]


@pytest.mark.parametrize("ours", [True, False], ids=["of the program", "of its process alone"])
def test_an_interruption_keeps_no_spec_half(monkeypatch, space, tmp_path, ours):
    plain = fake("")

    def isolated(function, *arguments, stopping=None, **options):
        if function is board.work.run_one and arguments[0].spec.name == "gla":
            if ours:
                stopping.set()
            return Failure("interrupted", "interrupted")
        return plain(function, *arguments, **options)

    monkeypatch.setattr(board, "isolated", isolated)
    monkeypatch.setattr(board, "bounds", lambda settings, log: {})
    with pytest.raises(KeyboardInterrupt):
        board.leaderboard(space, ["deltanet", "gla"], tmp_path / "run", lambda line: None)
    kept = board.read_measured(space, ["deltanet", "gla"], tmp_path / "run")
    assert [(entry.whole, entry.why) for entry in kept] == [(True, ""), (False, board.LATER)]


def test_a_leaderboard_grows_by_tasks_and_seeds(monkeypatch, tmp_path):
    """Only what is new is trained; what is no longer asked for is kept, and taken up again."""
    plain, trained = fake(""), []

    def isolated(function, *arguments, **options):
        if function is board.work.run_one:
            trained.append((arguments[0].task, arguments[0].seed))
        return plain(function, *arguments, **options)

    def measured(tasks: str, seeds: int) -> list[tuple[str, int]]:
        text = SPACE.replace("memorisation: tiny, mqar: tiny", tasks)
        path = tmp_path / "space.yaml"
        path.write_text(text.replace("seeds: 2", f"seeds: {seeds}"))
        trained.clear()
        (entry,) = board.leaderboard(
            load_space(str(path)), ["gla"], tmp_path / "run", lambda line: None
        )
        assert entry.whole
        return [(run.task, run.seed) for run in entry.runs]

    monkeypatch.setattr(board, "isolated", isolated)
    monkeypatch.setattr(board, "bounds", lambda settings, log: {})
    first = measured("mqar: tiny", 1)
    assert trained == first == [("mqar", 0)]
    both = measured("mqar: tiny, recall: tiny", 2)
    assert trained == [("recall", 0), ("mqar", 1), ("recall", 1)]
    assert sorted(both) == sorted(first + trained)
    assert measured("recall: tiny", 1) == [("recall", 0)]
    assert trained == []
    assert sorted(measured("mqar: tiny, recall: tiny", 2)) == sorted(both)
    assert trained == []
    assert measured("mqar: small", 1) == trained == [("mqar", 0)], "another size is another run"


@pytest.mark.parametrize("jobs", [1, 2])
def test_specs_that_are_one_rule_share_their_runs(monkeypatch, space, tmp_path, jobs):
    plain, trained = fake(""), []

    def isolated(function, *arguments, **options):
        if function is board.work.run_one:
            trained.append(arguments[0].key)
        return plain(function, *arguments, **options)

    def measured(names: list[str]) -> list[board.Entry]:
        return board.leaderboard(
            space, names, tmp_path / "run", lambda line: None, made=made, jobs=jobs
        )

    monkeypatch.setattr(board, "isolated", isolated)
    monkeypatch.setattr(board, "bounds", lambda settings, log: {})
    made = {"twin": load("gla"), "other": load("deltanet")}
    (first,) = measured(["gla"])
    assert len(trained) == 4
    _, second, other = measured(["gla", "twin", "other"])
    assert second.runs == first.runs
    assert len(trained) == 8
    assert not {run.key for run in other.runs} & {run.key for run in first.runs}


def test_two_commands_keep_each_others_entries(monkeypatch, space, tmp_path):
    """Both have read the folder's entries before either has one of its own."""
    monkeypatch.setattr(board, "isolated", fake(""))
    (tmp_path / "logs").mkdir()
    names = ["deltanet", "gla"]
    boards = [board._Board(space, tmp_path, board.RESULTS, {}, False, {}) for _ in names]
    seen = [one.looked(name, print) for one, name in zip(boards, names, strict=True)]
    for one, entry in zip(boards, seen, strict=True):
        one.measured(entry)
    kept = board.read_measured(space, names, tmp_path)
    assert [entry.whole for entry in kept] == [True, True]


def test_an_infinite_error_comes_back():
    entry = Entry("x", board.Look("x", "affine", 1, 1, 1.0, math.inf), ())
    assert read("x", json.loads(json.dumps(plain(entry), allow_nan=False))) == entry
