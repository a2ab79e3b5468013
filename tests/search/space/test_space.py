"""Spaces: settings, identity of points, previews, known systems."""

import sys
from pathlib import Path

import pytest

from mnemic.dsl.catalogue import find, names
from mnemic.errors import InvalidSpec
from mnemic.pipeline import derive, read
from mnemic.search import tasks
from mnemic.search.space.asking import by_answers
from mnemic.search.space.identity import identity
from mnemic.search.space.known import answers_of
from mnemic.search.space.preview import demand_points, preview
from mnemic.search.space.settings import TaskEntry
from mnemic.search.space.space import differing, load_space
from mnemic.search.study.training import Budget, Job

AXES = {
    "bias": {"choose": ["dot", "l2", {"kind": "huber", "over": "mixture",
                                       "delta": {"range": [0.1, 10.0]}}]},
    "retention": {"decay": {"choose": [1, "token", "channel"]},
                  "order": {"choose": ["before", "after"]}},
    "optimizer": {"choose": [{"rate": "token"},
                             {"method": "momentum", "rate": "token", "momentum": "token"},
                             {"method": "implicit", "rate": "token"}]},
}  # fmt: skip
GATED = {"name": "a", "bias": "l2", "retention": {"decay": "token", "order": "before"},
         "optimizer": {"rate": "token"}}  # fmt: skip


def space(search=None, **axes):
    return load_space({"name": "mine", **(axes or AXES),
                       "search": {"tasks": {"mqar": "tiny"}, **(search or {})}})  # fmt: skip


def told(**changes):
    with pytest.raises(InvalidSpec) as caught:
        space(changes)
    return str(caught.value)


def test_settings_that_name_what_is_not_there():
    assert "search.tasks.swap: no such task: read 'swap'" in told(tasks={"swap": "tiny"})
    assert "no rung of mqar: read 'tny'" in told(tasks={"mqar": "tny"})
    assert "a task of the memory alone" in told(tasks={"switching": "tiny"})
    assert told(objectives=["men"]).startswith("search.objectives[0]: read 'men', allowed: mean,")
    bound = "must be a whole number above 0, or a multiple of the reference's, as 1.1x"
    for given in ("many", "1.1y", "0x", -5, 1.1):
        told_bound = told(constraints={"flops": given})
        assert told_bound == f"search.constraints.flops: {bound}: read '{given}'"
    assert "read 'equl', allowed: equal, none; did you mean" in told(constraints="equl")
    assert "did you mean 'gated-deltanet'?" in told(start=["gated-deltane"])
    assert "search.trails: unknown key" in told(trails=3)
    assert "the last rung must train" in told(rungs=[{"untrained": "switching"}])
    assert "not a task of the memory alone" in told(rungs=[{"untrained": "mqar"}, {"steps": 1}])
    with pytest.raises(InvalidSpec, match=r"search\.tasks: is missing"):
        load_space({"name": "a", "search": {}})


def test_a_spec_without_an_entry_search_is_no_space():
    with pytest.raises(InvalidSpec, match=r"no entry 'search'.*\(a spec goes without one\)"):
        load_space("gated-deltanet")
    with pytest.raises(InvalidSpec, match=r"no entry 'search'.*\(is 'serch' meant for it\?\)"):
        load_space({"name": "a", "serch": {}})


def test_the_hash_follows_what_trials_depend_on():
    one = space()
    assert one.hash == space({"trials": 7, "sampler": "random", "start": []}).hash
    assert one.hash != space({"rungs": [{"steps": 5}]}).hash
    assert one.hash != space(bias="l2").hash


def of(**changes):
    return identity(derive({**GATED, **changes}))


def test_an_edited_base_makes_another_space(tmp_path):
    base, path = tmp_path / "base.yaml", tmp_path / "space.yaml"
    base.write_text(f"mnemic: 1\nname: base\nextends: {find('deltanet')}\n", encoding="utf-8")
    path.write_text(
        "mnemic: 1\nname: s\nextends: ./base.yaml\nbias: {choose: [dot, l2]}\n"
        "search: {tasks: {mqar: tiny}}\n",
        encoding="utf-8",
    )
    first, again = load_space(path), load_space(path)
    assert first.hash == again.hash
    assert list(first.identity["spec"]["bases"]) == ["base.yaml"]
    base.write_text(base.read_text(encoding="utf-8") + "retention: {decay: token}\n", "utf-8")
    edited = load_space(path)
    assert differing(first.identity, edited.identity) == ["spec.bases"]
    packaged = space(None, extends="deltanet", bias={"choose": ["dot", "l2"]})
    assert "bases" not in packaged.identity["spec"]


def test_an_edited_task_or_reference_is_another(tmp_path, monkeypatch):
    own, reference = tmp_path / "own.py", tmp_path / "reference.yaml"
    text = (Path(__file__).parents[3] / "examples" / "own_task.py").read_text(encoding="utf-8")
    text = text.replace('"parity"', '"parity-edited"')
    own.write_text(text, encoding="utf-8")
    reference.write_text(find("deltanet").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(tasks, "_TASKS", {**tasks._TASKS})

    def looked():
        settings = {"tasks": {str(own): "tiny"}, "reference": str(reference)}
        found = space(settings)
        budget = Budget(found.settings.model, found.settings.training, 4)
        job = Job(read("deltanet"), str(own), TaskEntry(rung="tiny"), None, budget, 0)
        return found.identity, job.key

    first, key = looked()
    assert looked() == (first, key)
    reference.write_text(reference.read_text(encoding="utf-8") + "# edited\n", encoding="utf-8")
    assert differing(first, looked()[0]) == ["search.reference"]

    # another process imports the file anew
    monkeypatch.delitem(sys.modules, tasks._TASKS.pop("parity-edited").__module__)
    own.write_text(text.replace("cumsum(1) % 2", "cumsum(1) // 2 % 2"), encoding="utf-8")
    edited, other = looked()
    assert differing(first, edited) == ["search.tasks", "search.reference"]
    assert other != key


def test_an_infinite_rate_may_stand_in_a_space():
    rates = [{"method": "implicit", "rate": float("inf")}, {"method": "implicit", "rate": "token"}]
    one, other = (space(bias="l2", optimizer={"choose": x}) for x in (rates, rates[::-1]))
    assert one.hash != other.hash


def test_the_same_rule_is_one_point_however_it_is_spelled():
    rate = {"from": "input", "activation": "sigmoid", "init": 0.5}
    named = {"optimizer": {"rate": "mine"}, "coefficients": {"mine": rate}}
    renamed = {"optimizer": {"rate": "x1"}, "coefficients": {"x1": rate}}
    assert of() == of(name="b", title="other") == of(bias={"expr": "(y - v)**2/2"})
    assert of() == of(features={"expr": "x"}) == of(optimizer={"rate": {"from": "input"}})
    assert of(**named) == of(**renamed)


def test_another_rule_range_or_block_is_another_point():
    plain = of()
    learned = {"decay": "learned", "order": "before"}
    others = [
        of(bias={"expr": "e**2"}),
        of(optimizer={"rate": "learned"}),
        of(optimizer={"rate": {"from": "input", "init": 0.3}}),
        of(optimizer={"rate": {"from": "input", "activation": "2*sigmoid(x)"}}),
        of(retention=learned),
        of(block={"heads": 2}),
        of(window=2, weights="token"),
    ]
    assert len({plain, *others}) == len(others) + 1


@pytest.mark.full
def test_no_two_packaged_specs_of_one_family_are_one_point():
    found = {name: identity(derive(name)) for name in names() if name.startswith(("d", "g"))}
    assert len(set(found.values())) == len(found)


def test_a_preview_counts_valid_points_and_groups_the_reasons():
    found = preview(space(), 24)
    assert found.sampled == 24
    assert found.valid + sum(found.reasons.values()) == 24
    assert 0 < found.distinct <= found.valid
    assert any("loss that couples the coordinates" in reason for reason in found.reasons)
    seen, good = found.options["bias"]["dot"]
    assert 0 < good <= seen < 24
    assert sum(found.classes.values()) == found.valid


def test_a_space_that_contradicts_itself():
    rate = {"choose": ["token", "learned"]}
    losses = {"choose": ["l2", {"kind": "lp", "p": 3}]}
    here = space(bias=losses, optimizer={"method": "exact", "rate": rate})
    with pytest.raises(InvalidSpec) as caught:
        demand_points(here)
    told = str(caught.value)
    assert told.startswith("mine: none of 100 sampled points is a valid spec: ")
    assert "an exact solver needs a ridge above 0" in told
    demand_points(space())


def test_packaged_specs_are_found_in_the_space():
    here = space()
    found = {name: answers_of(here, read(name)) for name in names()}
    held = {name for name, answers in found.items() if answers is not None}
    assert held == {"deltanet", "gated-deltanet", "kda", "longhorn", "rwkv7", "titans-linear"}
    for name in held:
        assert identity(derive(here.point(by_answers(found[name])).spec)) == identity(derive(name))


def test_what_a_block_leaves_open_is_the_spaces_first():
    block = {"heads": {"choose": [2, 1]}, "convolution": {"choose": [0, 4]}}
    here = space(**{**{k: v for k, v in GATED.items() if k != "name"}, "block": block})
    found = answers_of(here, read("gated-deltanet"))
    assert found == {"block.heads": "2", "block.convolution": "4"}


def test_numbers_of_ranges_are_the_specs_own():
    huber = {"kind": "huber", "delta": {"range": [0.5, 2.0]}}
    here = space(**{**{k: v for k, v in GATED.items() if k != "name"},
                    "bias": {"choose": ["l2", huber]}})  # fmt: skip
    mine = {**GATED, "bias": {"kind": "huber", "delta": 1.25}}
    assert answers_of(here, read(mine)) == {"bias": "huber", "bias=huber.delta": 1.25}
    assert answers_of(here, read({**mine, "bias": {"kind": "huber", "delta": 3.0}})) is None


def test_a_space_that_extends_a_packaged_spec():
    here = space(extends="gated-deltanet", bias={"choose": ["l2", "dot"]})
    assert here.point(by_answers({"bias": "l2"})).spec.retention.order == "before"
    assert answers_of(here, read("gated-deltanet")) == {"bias": "l2"}
    assert answers_of(here, read("deltanet")) is None


def test_mistakes_in_choices_options_and_settings_are_told_at_once(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "name: losses\n"
        "bias: {choose: [dot, l3, {kind: huber, delta: {range: [10, 1]}}]}\n"
        "retention: {decay: {choose: [1, tokn, 'exp(-delta)']}}\n"
        "search:\n  tasks: {mqar: tiny}\n  objektives: [mean]\n"
    )
    with pytest.raises(InvalidSpec) as caught:
        load_space(path)
    bias, delta, decay, search = str(caught.value).splitlines()
    assert bias.startswith(f"{path}:2:22: bias: read 'l3', allowed: dot,")
    assert delta.startswith(f"{path}:2:55: bias.choose[2].delta.range: the low end must be below")
    assert decay.startswith(f"{path}:3:33: retention.decay: unknown symbol: read 'tokn'")
    assert search.startswith(f"{path}:6:3: search.objektives: unknown key")


def test_a_preview_derives_a_spec_that_is_drawn_again_once(monkeypatch):
    from mnemic import pipeline

    derived = []
    derive = pipeline.derive
    monkeypatch.setattr(pipeline, "derive", lambda spec: derived.append(spec) or derive(spec))
    found = preview(space(bias={"choose": ["dot", "l2"]}), samples=12)
    assert (found.sampled, found.valid, len(derived)) == (12, 12, 2)
