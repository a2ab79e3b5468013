"""Fresh seeds: who is trained how often, what is kept, and what goes on."""

import json
from threading import Event

import pytest

from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec
from mnemic.search.report.ranking import beaten, verdict
from mnemic.search.report.write import intervals
from mnemic.search.space.space import load_space
from mnemic.search.study import confirm as module
from mnemic.search.study.confirm import FRESH, NAME, confidence, confirm, confirmed
from mnemic.search.study.isolated import Answer, Failure
from mnemic.search.study.scores import above, interval
from mnemic.search.study.side_by_side import side_by_side
from mnemic.search.study.training import Run

NEW, LOW, NEAR = (load(name) for name in ("deltanet", "retnet", "gla"))
SKILLS = {"deltanet": 0.9, "retnet": 0.2, "gla": 0.88, "dla": 0.0}


def space(**told: object):
    return load_space({
        "mnemic": 1, "name": "s",
        "search": {"tasks": {"memorisation": "tiny", "mqar": "tiny"}, "rungs": [{"steps": 3}],
                   "model": {"dim": 8, "layers": 1}, "confirm": {"seeds": 6, **told}},
    })  # fmt: skip


@pytest.fixture
def trained(monkeypatch):
    """In place of processes: a skill for each spec, some hundredths apart from seed to seed."""
    jobs = []

    def isolated(function, job, *arguments, **options):
        jobs.append((job.spec.name, job.seed, job.budget.steps, job.budget.model.dim))
        if job.spec.name == "dla":
            return Failure("memory", "out of memory")
        skill = SKILLS[job.spec.name] + 0.01 * (job.seed * 7 % 5)
        return Answer(Run(job.task, job.seed, skill, skill, 1.0, 0.1, (), job.key))

    monkeypatch.setattr(module, "isolated", isolated)
    return jobs


def seeds_of(jobs, name):
    return sorted({seed - FRESH for spec, seed, *_ in jobs if spec == name})


def named(*specs):
    return [(spec.name, spec) for spec in specs]


def test_who_is_far_below_has_early_seeds_alone(trained, tmp_path):
    found = confirm(space(early=3), named(NEW), named(LOW, NEAR), tmp_path, lambda line: None)
    assert [one.name for one in found] == ["deltanet", "retnet", "gla"]
    assert seeds_of(trained, "deltanet") == seeds_of(trained, "gla") == [0, 1, 2, 3, 4, 5]
    assert seeds_of(trained, "retnet") == [0, 1, 2]
    assert [one.skill.seeds for one in found if one.skill] == [6, 3, 6]


def test_seeds_that_are_trained_stay_when_fewer_are_asked(trained, tmp_path):
    confirm(space(), named(NEW), named(LOW), tmp_path, lambda line: None)
    del trained[:]
    found = confirm(space(early=3), named(NEW), named(LOW), tmp_path, lambda line: None)
    assert not trained
    assert [one.skill.seeds for one in found if one.skill] == [6, 6]


def test_without_early_all_have_all_seeds(trained, tmp_path):
    confirm(space(), named(NEW), named(LOW), tmp_path, lambda line: None)
    assert seeds_of(trained, "retnet") == [0, 1, 2, 3, 4, 5]


def test_what_is_done_is_not_done_again(trained, tmp_path):
    """A broken confirmation goes on spec by spec, and more seeds train what they add."""
    asked = space(early=3)
    confirm(asked, named(NEW), named(LOW), tmp_path, lambda line: None)
    before = len(trained)
    found = confirm(asked, named(NEW), named(LOW, NEAR), tmp_path, lambda line: None, jobs=2)
    assert {name for name, *_ in trained[before:]} == {"gla"}
    assert [one.name for one in confirmed(asked, tmp_path)] == [one.name for one in found]
    del trained[:]
    confirm(space(seeds=8), named(NEW), [], tmp_path, lambda line: None)
    assert seeds_of(trained, "deltanet") == [6, 7]


def test_a_spec_of_another_text_is_trained_anew(trained, tmp_path):
    confirm(space(), named(NEW), [], tmp_path, lambda line: None)
    other = load(
        {"mnemic": 1, "extends": "deltanet", "name": "deltanet", "retention": {"decay": "token"}}
    )
    confirm(space(), named(other), [], tmp_path, lambda line: None)
    assert len(trained) == 24
    assert len(confirmed(space(), tmp_path)) == 1


def test_longer_and_wider_are_settings_of_their_own(trained, tmp_path):
    lines: list[str] = []
    asked = space(longer=2, wider=3)
    found = confirm(asked, named(NEW), named(LOW), tmp_path, lines.append)
    assert [(one.name, one.setting) for one in found] == [
        ("deltanet", ""), ("retnet", ""), ("deltanet", "2x steps"), ("deltanet", "3x width"),
        ("retnet", "2x steps"), ("retnet", "3x width"),
    ]  # fmt: skip
    assert {job[2:] for job in trained} == {(3, 8), (6, 8), (3, 24)}
    assert set(intervals(found, "2x steps")) == {"deltanet", "retnet"}
    assert lines[2].startswith("3 of 6: deltanet with 2x steps 0.9")
    assert confirmed(asked, tmp_path) == found


def test_later_settings_begin_with_what_did_best(trained, tmp_path):
    """Each spec is compared in all of them before the next."""
    broken = load("dla")
    asked = space(longer=2, wider=3)
    confirm(asked, named(NEW), named(broken, LOW, NEAR), tmp_path, lambda line: None)
    later = [(name, steps, dim) for name, _, steps, dim in trained if (steps, dim) != (3, 8)]
    assert list(dict.fromkeys(later)) == [
        (name, *setting)
        for name in ("deltanet", "gla", "retnet", "dla")
        for setting in ((6, 8), (3, 24))
    ]


def test_two_commands_in_one_folder_keep_each_others_results(trained, tmp_path):
    first = module._Board(space(), tmp_path)
    confirm(space(), named(NEAR), [], tmp_path, lambda line: None)
    (setting, *_) = module._settings(space())
    first.trained((setting, (NEW.name, NEW)))
    assert {one.name for one in confirmed(space(), tmp_path)} == {"gla", "deltanet"}


def test_a_failure_is_kept_with_its_reason(trained, tmp_path):
    found = confirm(space(early=3), named(load("dla"), NEW), named(load("dla")), tmp_path,
                    lambda line: None)  # fmt: skip
    assert [(one.name, one.why) for one in found] == [("dla", "memory: out of memory"),
                                                      ("deltanet", "")]  # fmt: skip
    assert json.loads((tmp_path / NAME).read_text(encoding="utf-8"))["confirmed"][0]["runs"] == []


def test_two_looks_share_the_five_percent():
    """Half for each, or a spec that is no worse would be called so in 5 % of either look."""
    assert confidence(space()) == 0.95
    assert confidence(space(early=2)) == 0.975
    one, other = interval([0.5, 0.6, 0.7]), interval([0.1, 0.2, 0.42])
    assert above(one, other)
    assert not above(one, other, 0.975)
    assert beaten([("a", one)], [("b", other)]).startswith("above the hand-written spec: a")
    assert beaten([("a", one)], [("b", other)], 0.975).startswith(
        "no point found is above the hand-written"
    )
    assert "wins" in verdict([("a", one), ("b", other)])
    assert "not told apart" in verdict([("a", one), ("b", other)], 0.975)


def test_early_is_before_the_end():
    with pytest.raises(InvalidSpec, match="'early' must be fewer than 'seeds', 6"):
        space(early=6)


def test_what_ends_one_call_stops_the_others():
    stopping = Event()

    def call(item: int) -> int:
        if item == 1:
            raise KeyboardInterrupt
        return item

    with pytest.raises(KeyboardInterrupt):
        list(side_by_side(call, [0, 1, 2], 1, stopping))
    assert stopping.is_set()
    assert sorted(side_by_side(lambda x: 2 * x, [1, 2, 3], 2, Event())) == [2, 4, 6]
