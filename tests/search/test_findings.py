"""What docs/findings.md says of the confirmed search is what its kept runs say."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from mnemic.dsl.catalogue import names
from mnemic.search.space.one_block import with_block
from mnemic.search.space.space import Space, load_space
from mnemic.search.study.confirm import Confirmed, confidence, confirmed
from mnemic.search.study.scores import Interval, above

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "findings.md"
SEARCH = ROOT / "examples" / "search"
HEAD = "  | spec | mean skill | seeds | beside the best found |\n  | --- | ---: | ---: | --- |\n"
LATER_HEAD = (
    "  | spec | 800 steps | seeds | beside the best found | 128 channels | seeds | "
    "beside the best found |\n  | --- | ---: | ---: | --- | ---: | ---: | --- |\n"
)
LATER = ("2x steps", "2x width")
FOUND = {
    "axes-5e55f946": "Huber of ‖e‖, ReLU, weights, momentum (found)",
    "axes-35ddf1d6": "−⟨ŷ, v⟩, ReLU, weights, momentum (found)",
}
NOT_APART = {
    "deltaformer", "deltaformer-round", "deltaformer-softmax", "gated-softmax",
    "gaussian-attention", "kernel-regression", "local-linear-attention", "mesa", "path-fox",
    "softmax-attention",
}  # fmt: skip
"""Told in words below the table: the three DeltaFormers, softmax, gated softmax, ..."""
WITHIN = 89
"""Packaged rules within the budget."""


@dataclass(frozen=True)
class Row:
    name: str
    skill: Interval
    verdict: str

    def __str__(self) -> str:
        return f"  | {FOUND.get(self.name, self.name)} | {self.cells} |\n"

    @property
    def cells(self) -> str:
        return f"{self.skill} | {self.skill.seeds} | {self.verdict}".rstrip()


def verdict(skill: Interval, best: Interval) -> str:
    if skill is best:
        return ""
    sure = confidence(space())
    if above(best, skill, sure):
        return "below"
    return "above" if above(skill, best, sure) else "not told apart"


@cache
def space() -> Space:
    """The search's space in its block."""
    return with_block(load_space(SEARCH / "axes.yaml"), str(SEARCH / "block.yaml"))


@cache
def kept(setting: str = "") -> tuple[Confirmed, ...]:
    """Every spec with fresh seeds at the search's own budget, or in a later setting."""
    return tuple(one for one in confirmed(space(), SEARCH / "axes") if one.setting == setting)


@cache
def rows(setting: str = "") -> tuple[Row, ...]:
    """Every spec that could be trained, best first."""
    skills = {one.name: one.skill for one in kept(setting) if one.skill}
    best = max((skills[name] for name in FOUND if name in skills), key=lambda skill: skill.mean)
    found = (Row(name, skill, verdict(skill, best)) for name, skill in skills.items())
    return tuple(sorted(found, key=lambda row: -row.skill.mean))


def told() -> Iterator[str]:
    """What the page says of the table, by its counts."""
    packaged = [row for row in rows() if row.name not in FOUND]
    below = [row for row in packaged if row.verdict == "below"]
    yield f"{len(kept()) - len(FOUND)} of the {WITHIN} packaged rules"
    yield f"of the {len(below)} that are below {sum(row.skill.seeds == 10 for row in below)} took"
    best = next(row for row in rows() if row.name in FOUND)
    yield f"{best.skill} where DeltaNet has"


def test_the_table_of_fresh_seeds_is_what_the_runs_say(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(HEAD)
    table, rest = after.split("\n\n", 1)
    made = "".join(map(str, rows()))
    if request.config.getoption("--regenerate"):
        PAGE.write_text(f"{before}{HEAD}{made}\n{rest}", encoding="utf-8")
    else:
        assert f"{table}\n" == made


def test_the_table_of_longer_and_wider_is_what_the_runs_say() -> None:
    """Best first with twice the steps; those that were trained in one setting alone come last."""
    cells = {setting: {row.name: row.cells for row in rows(setting)} for setting in LATER}
    every = dict.fromkeys(name for setting in LATER for name in cells[setting])
    made = "".join(
        f"  | {FOUND.get(name, name)} | "
        + " | ".join(cells[setting].get(name, " | | ") for setting in LATER)
        + " |\n"
        for name in every
    )
    _, after = PAGE.read_text(encoding="utf-8").split(LATER_HEAD)
    assert after.split("\n\n", 1)[0] + "\n" == made


@pytest.mark.parametrize("said", list(told()))
def test_the_counts_on_the_page_are_the_tables(said: str) -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert said in text


def test_the_page_names_what_is_not_below_the_best_found() -> None:
    packaged = {row.name: row.verdict for row in rows() if row.name not in FOUND}
    assert [name for name, said in packaged.items() if said == "above"] == ["path"]
    assert {name for name, said in packaged.items() if said == "not told apart"} == NOT_APART


RANKING = " | spec | mean skill | mqar |"
ALL_FROM = 12
"""Places down to this one are all in the page's ranking, below it a few."""


def ranked(table: str) -> list[list[str]]:
    """Return the cells of each row of a ranking."""
    lines = table.splitlines()
    start = next(i for i, line in enumerate(lines) if RANKING in line)
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@cache
def leaderboard() -> dict[str, list[str]]:
    """By spec, its row as the page has it: without intervals of tasks, parameters and times."""
    cells = ranked((SEARCH / "wide" / "one-block.md").read_text(encoding="utf-8"))
    return {
        name: [str(place), name, mean, *(task.split()[0] for task in rest[:-3]), rest[-2]]
        for place, (_, name, mean, *rest) in enumerate(cells, 1)
    }


def test_the_ranking_is_the_leaderboards() -> None:
    made = ranked(PAGE.read_text(encoding="utf-8"))
    assert made == [leaderboard()[row[1]] for row in made]
    assert [row[0] for row in made[:ALL_FROM]] == [str(1 + i) for i in range(ALL_FROM)]


def test_every_packaged_spec_is_ranked() -> None:
    assert set(leaderboard()) == set(names())
    text = (SEARCH / "wide" / "one-block.md").read_text(encoding="utf-8")
    first = sum(row[0].endswith("=") for row in ranked(text))
    page = PAGE.read_text(encoding="utf-8")
    assert f"ranks all {len(names())} packaged specs" in page
    assert f"{first} specs are not told apart from the first" in page
    assert f"{first} of {len(names())} specs are not told apart" in page
