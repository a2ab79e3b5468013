"""The two tiers of the tests, told apart here and nowhere else.

A plain ``pytest`` runs every test. ``pytest --tier first`` leaves out four kinds of cases:

- tests marked ``full``;
- of a test marked ``few``, cases whose values have all been met already;
- of a test with cases for more specs than ``packaged.CORE`` has, the cases of other specs, unless
  their generated code has changed since the whole matrix last passed (see ``reached``);
- of a test with three parametrisations or more, cases whose values have all met in pairs already.

So a new test is in the first tier unless it is marked, and no function is left out without a mark.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest
from packaged import CORE, NAMES, PATHS

SLOW = 10.0
"""Seconds of processor time in which a test of the first tier should be done."""

CHANGED = pytest.StashKey[tuple[str, ...]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Choose the tier, and record a whole run."""
    parser.addoption("--tier", choices=("first", "full"), default="full", help="see tests/tiers.py")
    parser.addoption(
        "--record", action="store_true",
        help="after a run of every test that passes, record the generated code as tested",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Find the specs whose code has changed: once, in the process that tells the workers."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.stash[CHANGED] = tuple(worker["changed"])
    elif config.getoption("tier") == "first":
        import reached

        config.stash[CHANGED] = reached.changed()
    else:
        config.stash[CHANGED] = ()


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
    """Leave out what only the full tier runs."""
    if config.getoption("tier") == "full":
        return
    kept = set(first(items, {*CORE, *config.stash[CHANGED]}))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def first(items: Iterable[pytest.Item], specs: set[str]) -> Iterator[pytest.Item]:
    """Return the tests of the first tier, with all cases of these specs."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in functions.items():
        some = [item for item in cases if item.get_closest_marker("full") is None]
        several = {spec for item in some for spec in specs_of(item)}
        if len(several) > len(CORE):
            some = [item for item in some if specs_of(item) <= specs]
            if not some:
                raise pytest.UsageError(f"{name}: of its specs none is in packaged.CORE")
        few = any(item.get_closest_marker("few") for item in some)
        yield from covering(some, 1) if few else pairwise(some)


def specs_of(item: pytest.Item) -> set[str]:
    """Return the packaged specs among the values of a case."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec else ()
    names = {x.stem if isinstance(x, Path) else x for x in values if isinstance(x, str | Path)}
    return names & PATHS.keys()


def pairwise(cases: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Return few cases of one function in which every two values that meet in any case meet.

    With one parametrisation or two these are all.
    """
    several = max((len(_values(item)) for item in cases), default=0) > 2
    yield from covering(cases, 2) if several else cases


def covering(cases: Sequence[pytest.Item], together: int) -> Iterator[pytest.Item]:
    """Return few cases in which every so many values that meet in any case meet.

    Each time the case is taken that brings the most of them together anew.
    """
    meetings = [set(combinations(_values(item), together)) for item in cases]
    left, taken = set[object]().union(*meetings), set[int]()
    while left:
        best = max(range(len(cases)), key=lambda at: len(meetings[at] & left))
        taken.add(best)
        left -= meetings[best]
    yield from (cases[at] for at in sorted(taken))


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Note the processor time of a test, its child processes' too where they have ended."""
    begun = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu", sum(os.times()[:4]) - begun))


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    """Name the tests that are too slow for the first tier, and the time of all."""
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    taken = {r.nodeid: dict(r.user_properties).get("cpu", 0.0) for r in reports}
    slow = sorted(((x, name) for name, x in taken.items() if x > SLOW), reverse=True)
    for seconds, name in slow if config.getoption("tier") == "first" else ():
        advice = f"{seconds:.0f} s of processor time: make it smaller, or mark it full"
        terminalreporter.write_line(f"{name} took {advice}")
    if len(taken) > 1:
        terminalreporter.write_line(f"{sum(taken.values()):.0f} s of processor time in tests")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Record the generated code as tested, after a run of everything."""
    config = session.config
    if not config.getoption("record") or hasattr(config, "workerinput"):
        return
    whole = [Path(x).resolve() for x in config.args] == [Path(__file__).parent]
    chosen = config.getoption("keyword") or config.getoption("markexpr")
    if exitstatus == 0 and whole and not chosen and config.getoption("tier") == "full":
        import reached

        reached.record()
