"""The two tiers of the tests, told apart here and nowhere else.

A plain ``pytest`` runs every test. ``pytest --tier first`` leaves out five kinds of cases:

- tests marked ``full``;
- of a test marked ``some(n)``, a test of variants of one thing, all cases but n, evenly chosen;
- of a test marked ``few``, cases whose values have all been met already; of its packaged specs
  those each trait of which has met every other value in another spec;
- of a test with cases for more specs than ``packaged.CORE`` has, the cases of other specs, unless
  what they run has changed since all their cases last passed (see ``reached``);
- of a test with three parametrisations or more, cases whose values have all met in pairs already.

So a new test is in the first tier unless it is marked, and no function is left out without a mark.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from packaged import CORE, FACTS, NAMES, PATHS

SLOW = 10.0
"""Seconds of processor time in which a test of the first tier should be done."""

LISTED = 25
"""Files of tests whose processor time is told at the end: those that take most of it."""

RUNS = {"first": False}
"""Whether the first tier runs, known before tests are collected."""

CHANGED = pytest.StashKey[list[str]]()
"""The specs to be run in full, since what they run has changed."""

CODES = pytest.StashKey[dict[str, Any]]()
"""What each spec runs, as it was before the tests (see ``reached``)."""

BEGUN = pytest.StashKey[float]()
"""The processor time before a test's fixtures."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Choose the tier, and record a whole run."""
    parser.addoption("--tier", choices=("first", "full"), default="full", help="see tests/tiers.py")
    parser.addoption(
        "--record", action="store_true",
        help="run every case of the specs whose code has changed, and record those that pass",
    )  # fmt: skip
    parser.addoption("--times", metavar="FILE", help="write each test's processor time, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Find the specs whose code has changed: once, in the process that tells the workers."""
    RUNS["first"] = config.getoption("tier") == "first"
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.stash[CHANGED] = worker["changed"]
    elif config.getoption("tier") == "first" or config.getoption("record"):
        import reached

        config.stash[CODES] = reached.codes()
        config.stash[CHANGED] = reached.changed(config.stash[CODES])
    else:
        config.stash[CHANGED] = []
    if worker is None and config.getoption("record"):
        config.pluginmanager.register(Recorder(config))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Tell a worker of pytest-xdist."""
    node.workerinput["changed"] = node.config.stash[CHANGED]


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say what the first tier runs."""
    if config.getoption("tier") == "full":
        return None
    changed = config.stash[CHANGED]
    told = f", and {len(changed)} whose code has changed: {', '.join(changed)}" if changed else ""
    return f"first tier: {len(CORE)} of {len(NAMES)} specs in full{told}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only the full tier runs, and let each report tell the specs of its case."""
    for item in items:
        item.user_properties.append(("specs", sorted(specs_of(item))))
    if config.getoption("tier") == "full":
        return
    changed = {*config.stash[CHANGED]}
    kept = set(first(items, changed))
    if config.getoption("record"):
        kept |= {item for item in items if specs_of(item) & changed}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def first(items: Iterable[pytest.Item], changed: set[str]) -> Iterator[pytest.Item]:
    """Return the tests of the first tier, where the code of these specs has changed."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in functions.items():
        some = [item for item in cases if item.get_closest_marker("full") is None]
        some = spread(some, changed)
        several = {spec for item in some for spec in specs_of(item)}
        matrix = len(several) > len(CORE)
        if matrix:
            some = [item for item in some if specs_of(item) <= changed.union(CORE)]
            if not some:
                raise pytest.UsageError(f"{name}: of its specs none is in packaged.CORE")
        if not any(item.get_closest_marker("few") for item in some):
            yield from pairwise(some)
        elif matrix:
            yield from covering(some, [_traits_met(item, changed) for item in some])
        else:
            yield from covering(some, _met(some, 1))


def spread(cases: Sequence[pytest.Item], changed: set[str]) -> list[pytest.Item]:
    """Return as many cases of a function as its mark ``some`` asks for, from the first to the last.

    Without the mark these are all. Cases of a spec whose code has changed stay, too.
    """
    mark = next((item.get_closest_marker("some") for item in cases), None)
    if mark is None or mark.args[0] >= len(cases):
        return [*cases]
    gaps = max(1, mark.args[0] - 1)
    chosen = {at * (len(cases) - 1) // gaps for at in range(mark.args[0])}
    return [x for at, x in enumerate(cases) if at in chosen or specs_of(x) & changed]


def first_only(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Return the values of a parametrisation, of which the first tier runs only those kept.

    For variants of one thing: kept are cheap ones that differ in kind.
    """
    every = [*values]
    assert kept
    assert all(value in every for value in kept), f"of {kept} not all are among the values"
    marks = [() if value in kept else pytest.mark.full for value in every]
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=mark)
        for value, mark in zip(every, marks, strict=True)
    ]


def examples(full: int, first: int) -> int:
    """Return how many examples Hypothesis draws in the tier that runs."""
    return first if runs_first() else full


def runs_first() -> bool:
    """Whether the first tier runs, and not the full one or a part of the tests by itself."""
    return RUNS["first"]


def specs_of(item: pytest.Item) -> set[str]:
    """Return the packaged specs among the values of a case."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    return {name for name in map(_spec_of, values) if name is not None}


def _spec_of(value: object) -> str | None:
    """Return the name of the packaged spec that a value names, or whose path it is."""
    name = value.stem if isinstance(value, Path) else value
    return name if isinstance(name, str) and name in PATHS else None


def pairwise(cases: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Return few cases of one function in which every two values that meet in any case meet.

    With one parametrisation or two these are all.
    """
    several = max((len(_values(item)) for item in cases), default=0) > 2
    yield from covering(cases, _met(cases, 2)) if several else cases


def covering(cases: Sequence[pytest.Item], met: Sequence[set[Any]]) -> Iterator[pytest.Item]:
    """Return few cases with all that is met in any case.

    Each time the case is taken that meets the most that is new.
    """
    left, taken = set[object]().union(*met), set[int]()
    while left:
        best = max(range(len(cases)), key=lambda at: len(met[at] & left))
        taken.add(best)
        left -= met[best]
    yield from (cases[at] for at in sorted(taken))


def _met(cases: Iterable[pytest.Item], together: int) -> list[set[Any]]:
    """Return for each case which values it brings together, so many at a time."""
    return [set(combinations(_values(item), together)) for item in cases]


def _traits_met(item: pytest.Item, changed: set[str]) -> set[Any]:
    """Return what a case over packaged specs brings together: each trait with each other value.

    A spec whose code has changed stands for itself.
    """
    specs = specs_of(item)
    others = [(n, x) for n, x in _values(item) if _spec_of(item.callspec.params[n]) is None]
    if specs & changed:
        return {(tuple(specs), *others)}
    traits = {trait for spec in specs for trait in FACTS[spec]["traits"]}
    return {(trait, other) for trait in traits for other in others or [None]}


def _values(item: pytest.Item) -> list[tuple[str, object]]:
    callspec = getattr(item, "callspec", None)
    return [(name, _key(x)) for name, x in callspec.params.items()] if callspec else []


def _key(value: object) -> object:
    """Return a value, or what stands for one that cannot be hashed."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value


# -- what a test takes ---------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note the processor time before the fixtures of a test."""
    item.stash[BEGUN] = processor_time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Note the processor time of a test, and that of its fixtures."""
    begun = processor_time()
    item.user_properties.append(("fixtures", begun - item.stash[BEGUN]))
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu", processor_time() - begun))


def processor_time() -> float:
    """Return the processor time of this process and of those it has started.

    Where the system does not list them, as Linux does, those that have not ended yet are left out.
    """
    return sum(os.times()[:4]) + _running(os.getpid())


def _running(process: int | str) -> float:
    """Return the processor time of the children of a process that have not ended yet."""
    found = 0.0
    for child in _children(process):
        with suppress(OSError):
            times = _read(f"/proc/{child.decode()}/stat").rpartition(b")")[2].split()
            ticks = sum(map(int, times[11:15]))  # own, and of its ended children
            found += ticks / os.sysconf("SC_CLK_TCK") + _running(child.decode())
    return found


def _children(process: int | str) -> list[bytes]:
    """Return the numbers of the processes that a process has started, where the system tells."""
    found: list[bytes] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            found += _read(f"/proc/{process}/task/{thread}/children").split()
    return found


def _read(path: str) -> bytes:
    """Read a file of the system's, in the shortest way: this is asked for around every test."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """Name the tests that are too slow for the first tier, and the time of all."""
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    noted = {r.nodeid: dict(r.user_properties) for r in reports}
    taken = {name: each.get("cpu", 0.0) for name, each in noted.items()}
    slow = sorted(((x, name) for name, x in taken.items() if x > SLOW), reverse=True)
    for seconds, name in slow if config.getoption("tier") == "first" else ():
        advice = f"{seconds:.0f} s of processor time: make it smaller, or mark it full"
        terminalreporter.write_line(f"{name} took {advice}")
    files = Counter[str]()
    for name, each in noted.items():
        files[name.partition("::")[0]] += each.get("cpu", 0.0) + each.get("fixtures", 0.0)
    if len(files) > 1:
        for name, seconds in files.most_common(LISTED):
            terminalreporter.write_line(f"{seconds:6.0f} s  {name}")
    if len(taken) > 1:
        terminalreporter.write_line(f"{sum(files.values()):.0f} s of processor time in tests")
    if config.getoption("times"):
        Path(config.getoption("times")).write_text(json.dumps(noted, indent=0), encoding="utf-8")


# -- what has passed -----------------------------------------------------------------------------


class Recorder:
    """Note which specs passed in every case, and write their digests at the end of a whole run."""

    def __init__(self, config: pytest.Config) -> None:
        self.failed: set[str] = set()
        options = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "maxfail")
        others = any(config.getoption(x, None) for x in (*options, "collectonly"))
        whole = [Path(x).resolve() for x in config.args] == [Path(__file__).parent]
        self.whole = whole and not others
        self.full = config.getoption("tier") == "full"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the specs of a case that failed; one whose process died does not tell them."""
        if report.failed:
            told = dict(report.user_properties)
            self.failed.update(told.get("specs", NAMES))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Record the digests of the specs every case of which has passed."""
        if self.whole and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            import reached

            stash = session.config.stash
            ran = NAMES if self.full else stash[CHANGED]
            reached.record(stash[CODES], ran, self.failed)
