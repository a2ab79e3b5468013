"""Halving, intervals, storages: the parts of a study that need no training."""

import math
import random
from pathlib import Path

import pytest
from scipy import stats

from mnemic.errors import EnvironmentFailed, UsageError
from mnemic.search.report.ranking import beaten, verdict
from mnemic.search.study.halving import goes_on
from mnemic.search.study.scores import above, interval
from mnemic.search.study.storage import Beat, filesystem, open_storage

MOUNTS = "/dev/sda1 / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\nx /home/a\\040b ext4 rw 0 0\n"


def test_the_best_share_goes_on():
    others = [[float(i)] for i in range(1, 9)]
    on = [x for x in (0.5, 1.5, 2.5, 3.5, 9.0) if goes_on([x], others, 1 / 3)]
    assert on == [0.5, 1.5, 2.5], "3 of 9"
    assert goes_on([99.0], [], 0.1), "the first always goes on"
    assert not goes_on([math.inf], [[1.0], [2.0], [3.0]], 0.5)


def test_with_two_objectives_what_none_dominates_goes_on():
    others = [[1.0, 9.0], [9.0, 1.0], [5.0, 5.0], [6.0, 6.0], [7.0, 7.0]]
    assert goes_on([2.0, 2.0], others, 0.01)
    assert goes_on([0.5, 20.0], others, 0.01), "the best in one"
    assert not goes_on([8.0, 8.0], others, 0.5)


@pytest.mark.parametrize("n", [2, 3, 5, 12, 40])
def test_intervals_are_students(n):
    values = [math.sin(i) for i in range(n)]
    found = interval(values)
    mean, error = sum(values) / n, stats.sem(values)
    low, high = stats.t.interval(0.95, n - 1, loc=mean, scale=error)
    assert found.low == pytest.approx(low, rel=1e-9)
    assert found.high == pytest.approx(high, rel=1e-9)


def test_a_winner_is_called_only_where_means_are_apart():
    high, near, low = interval([0.9, 0.91, 0.92]), interval([0.89, 0.9, 0.91]), interval([0.1, 0.3])
    assert verdict([("b", interval([0.1, 0.1, 0.11])), ("a", high)]).startswith("a wins: 0.910")
    assert "not told apart" in verdict([("a", high), ("b", near)])
    assert "not told apart" in verdict([("a", high), ("b", low)]), "two seeds say little"
    assert "one seed" in verdict([("a", high), ("b", interval([0.5]))])


def test_a_winner_is_above_all_others_and_not_the_second_alone():
    high, second, wide = (interval(x) for x in ([0.9, 0.91, 0.92], [0.85, 0.851, 0.852],
                                                [0.6, 0.95, 0.97]))  # fmt: skip
    assert verdict([("a", high), ("b", second)]).startswith("a wins")
    told = verdict([("a", high), ("b", second), ("c", wide)])
    assert told.startswith("a is best but not told apart from all others: 0.910")
    assert told.endswith("of c")
    assert "one seed" in verdict([("a", high), ("b", second), ("c", interval([0.5]))])


@pytest.mark.parametrize("seed", range(20))
def test_means_are_apart_as_scipy_says(seed):
    rng = random.Random(seed)
    one = [rng.gauss(0.6, 0.05) for _ in range(rng.randint(2, 7))]
    two = [rng.gauss(0.5, 0.15) for _ in range(rng.randint(2, 7))]
    told = stats.ttest_ind(one, two, equal_var=False).confidence_interval(0.95)
    assert above(interval(one), interval(two)) == (told.low > 0)


def test_what_is_above_all_made_by_hand():
    high, near, low = (
        interval([0.9, 0.91, 0.92]),
        interval([0.88, 0.9, 0.91]),
        interval([0.1, 0.11]),
    )
    told = beaten([("a", high), ("b", low)], [("c", interval([0.5, 0.51, 0.5])), ("d", low)])
    assert told == "above all 2 hand-written specs: a; the best of these: c with 0.503 ± 0.014"
    assert beaten([("a", high)], [("b", near)]).startswith(
        "no point found is above the hand-written spec"
    )
    wide = ("d", interval([0.0, 0.95]))
    assert beaten([("a", high)], [("c", low), wide]).startswith("no point"), (
        "of two seeds, far apart"
    )
    assert beaten([("a", high)], []) == beaten([], [("a", high)]) == ""


def test_the_file_system_of_a_path():
    assert filesystem(Path("/home/me/run"), MOUNTS) == "nfs4"
    assert filesystem(Path("/home/a b/run"), MOUNTS) == "ext4"
    assert filesystem(Path("/var"), MOUNTS) == "ext4"


def test_sqlite_on_a_network_file_system(tmp_path):
    mounts = f"/dev/sda1 / ext4 rw 0 0\nserver:/x {tmp_path.resolve()} nfs4 rw 0 0\n"
    with pytest.raises(UsageError) as caught:
        open_storage(None, tmp_path, Beat(), mounts)
    assert "SQLite on a network file system (nfs4)" in str(caught.value)
    assert not any(tmp_path.iterdir()), "nothing is written"


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("postgresql://u:secret@127.0.0.1:1/db", EnvironmentFailed, "the storage cannot be used"),
        ("nonsense", UsageError, "not a storage's URL"),
        ("oracle://u@host/db", EnvironmentFailed, "no driver for this storage"),
        ("sqlite:////nowhere/at/all.db", UsageError, "/nowhere/at: no such folder"),
        ("sqlite://", UsageError, "must be a file"),
    ],
)
def test_a_storage_that_cannot_be_had(tmp_path, url, error, words):
    with pytest.raises(error) as caught:
        open_storage(url, tmp_path, Beat())
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "study.db"
    path.write_text("a letter, not a database " * 100)
    with pytest.raises(EnvironmentFailed, match="not a database"):
        open_storage(None, tmp_path, Beat())
    assert path.read_text().startswith("a letter")
