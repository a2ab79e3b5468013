"""A search on SQLite: begun, gone on with, told about, and not overwritten."""

import dataclasses
import html
import json
import re
import threading
from contextlib import closing
from pathlib import Path

import optuna
import pytest
from small_space import SPACE

from mnemic.dsl.catalogue import find
from mnemic.errors import EnvironmentFailed, UsageError
from mnemic.pipeline import derive, read
from mnemic.search.report.page import _reasons
from mnemic.search.report.write import write
from mnemic.search.space.identity import identity
from mnemic.search.space.space import load_space
from mnemic.search.study import trial as trial_module
from mnemic.search.study import work, worker
from mnemic.search.study.isolated import Failure
from mnemic.search.study.records import MARK, WORKER, Record, counted
from mnemic.search.study.samplers import sampler
from mnemic.search.study.search import Search, open_search
from mnemic.search.study.trial import End
from mnemic.search.study.worker import work_on

Opened = tuple[object, list[Record], list[str]]


def searched(path: Path, folder: Path, **changes):
    """A search to its end; its records and what it said."""
    space = load_space(path)
    space = dataclasses.replace(space, settings=space.settings.model_copy(update=changes))
    said: list[str] = []
    search = open_search(space, folder, tell=said.append)
    try:
        work_on(search)
        return space, search.records(), said
    finally:
        search.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A search of four trials, two of them specs that were known."""
    folder = tmp_path_factory.mktemp("whole")
    path = folder / "space.yaml"
    path.write_text(SPACE.replace("start: []", "start: [gated-deltanet, deltanet]"))
    return (path, folder / "run", *searched(path, folder / "run"))


def test_every_trial_is_told_and_known_specs_come_first(whole):
    _, _, _, records, said = whole
    assert said[0].startswith("before the first trial: the costs of the reference")
    assert len(said) == 1 + len(records)
    assert sum(r.counts for r in records) == 4
    assert [r.attributes.get("start") for r in records[:2]] == ["gated-deltanet", "deltanet"]
    assert {r.kind for r in records} <= {"finished", "stopped", "duplicate", "invalid"}
    for one in (r for r in records if r.kind == "finished"):
        runs = one.runs(1)
        assert [run.seed for run in runs] == [0, 1]
        assert one.values == (pytest.approx(sum(run.skill for run in runs) / 2),)
    for one in records:
        if one.identity is not None:
            assert identity(derive(read(one.attributes["spec"]))) == one.identity


def test_the_same_command_again_does_nothing_more(whole):
    path, folder, _, records, _ = whole
    _, again, said = searched(path, folder)
    assert said == []
    assert again == records


def test_the_report_opens_offline_and_the_best_specs_load(whole):
    _, folder, space, records, _ = whole
    search = open_search(space, folder)
    summary = write(search)
    search.close()
    text = (folder / "report.html").read_text(encoding="utf-8")
    addresses = set(re.findall(r"(?:https?:)?//[\w./-]+", text.split("<script>")[0]))
    assert all("w3.org" in a or "purl.org" in a or "creativecommons" in a or "matplotlib.org" in a
               for a in addresses), addresses  # fmt: skip
    assert not re.search(r"<(?:link|img|script)[^>]+(?:src|href)=", text)
    assert text.count("<svg") >= 4
    names = [point.spec.name for point in summary.best]
    assert names
    assert all(name in text for name in names)
    for place, point in enumerate(summary.best, 1):
        best = read(str(folder / "best" / f"{place}.yaml"))
        assert identity(derive(best)) == point.record.identity
    assert summary.to_json()["trials"] == len(records)


HOSTILE = "<img src=x onerror=alert(1)> $\\frac{$ & '\"-->"


def test_a_report_shows_a_hostile_name_as_text(space_file, tmp_path, monkeypatch):
    """Of a spec to begin with, and in the space's own words."""
    monkeypatch.chdir(tmp_path)
    spec = Path(f"{HOSTILE}.yaml")
    spec.write_text(find("deltanet").read_text(encoding="utf-8"), encoding="utf-8")
    text = SPACE.replace("start: []", f"start: [{json.dumps(str(spec))}]")
    text = text.replace("trials: 4", "trials: 2")
    space_file.write_text(f"{text}notes: {json.dumps('</script>' + HOSTILE)}\n", encoding="utf-8")
    space, _, _ = searched(space_file, tmp_path / "run")
    search = open_search(space, tmp_path / "run")
    summary = write(search)
    search.close()
    assert any(HOSTILE in (point.start or "") for point in summary.best)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert page.count("</script>") == 1
    assert html.escape(HOSTILE, quote=False).partition(" $")[0] in page


def test_a_study_of_another_space_is_not_touched(whole, tmp_path):
    path, folder, _, records, _ = whole
    other = tmp_path / "other.yaml"
    other.write_text(path.read_text().replace("{steps: 4, keep: 0.5}", "{steps: 5, keep: 0.5}"))
    with pytest.raises(UsageError) as caught:
        open_search(load_space(other), folder)
    assert "a study of another space under this name" in str(caught.value)
    assert "differs in search.rungs" in str(caught.value)
    search = open_search(load_space(path), folder)
    assert search.records() == records
    search.close()


def test_a_folder_that_is_not_a_searchs(tmp_path, space_file):
    with pytest.raises(UsageError, match="holds files that mnemic did not write"):
        open_search(load_space(space_file), tmp_path)


def test_a_study_that_mnemic_did_not_make(tmp_path, space_file):
    url = f"sqlite:///{tmp_path}/other.db"
    study = optuna.create_study(study_name="tiny-space", storage=url)
    study.add_trial(optuna.create_trial(value=1.0))
    with pytest.raises(UsageError, match="not made by mnemic"):
        open_search(load_space(space_file), tmp_path / "run", url)


def test_a_study_whose_maker_died_before_its_mark_is_marked(tmp_path, space_file):
    url = f"sqlite:///{tmp_path}/kept.db"
    optuna.create_study(study_name="tiny-space", storage=url, directions=["maximize"])
    search = open_search(load_space(space_file), tmp_path / "run", url)
    try:
        assert search.study.user_attrs[MARK]["space"] == search.space.hash
    finally:
        search.close()


def test_a_duplicate_returns_what_is_stored(tmp_path, space_file):
    """dot before and after the decay are one rule, whatever the threshold of a loss not taken."""
    text = space_file.read_text()
    space_file.write_text(
        re.sub(r"bias: .*", "bias: dot", text)
        .replace("decay: {choose: [1, token, channel]}", "decay: token")
        .replace("rate: {choose: [token, learned]}", "rate: token")
        .replace("trials: 4", "trials: 4\n  sampler: grid")
    )
    _, records, said = searched(space_file, tmp_path / "run")
    assert [r.kind for r in records] == ["finished", "duplicate"]
    assert records[1].values == records[0].values
    assert records[1].attributes["same_as"] == 0
    assert len(list((tmp_path / "run" / "runs").glob("*/*/run.json"))) == 3, "4 and 2 x 8 steps"
    assert said[2].startswith("trial 1 duplicate: mean")


@pytest.mark.parametrize(
    ("old", "new", "kind", "why"),
    [
        ("warmup: 2}", "warmup: 0, lr: 1.0e+30}", "failed", "not finite: training on"),
        ("trials: 4", "trials: 1\n  limits: {seconds: 0.01}", "failed", "time: took more than"),
        ("batch: 4", "batch: 60000", "failed", "memory: out of memory: took more than 0.05 GiB"),
    ],
)
def test_what_goes_wrong_costs_one_trial(tmp_path, space_file, old, new, kind, why):
    text = space_file.read_text().replace(old, new)
    text = text.replace("trials: 4", "trials: 1\n  limits: {memory: 0.05}")
    space_file.write_text(text.replace("choose: [token, learned]", "choose: [token]"))
    _, records, said = searched(space_file, tmp_path / "run")
    counted = [r for r in records if r.counts]
    assert [r.kind for r in counted] == [kind]
    assert counted[0].why.startswith(why)
    assert counted[0].why in "".join(said)
    assert counted[0].values is None


def test_a_machine_on_which_every_trial_crashes_uses_up_no_search(
    tmp_path, space_file, monkeypatch
):
    """The worker stops after a few, and they are done again once, when the machine is mended."""
    monkeypatch.setattr(worker, "CRASHES", 2)
    space, said = load_space(space_file), list[str]()

    def worked():
        search = open_search(space, tmp_path / "run", tell=said.append)
        try:
            work_on(search)
        finally:
            records = search.records()
            search.close()
        return records

    with monkeypatch.context() as broken:
        broken.setattr(trial_module, "isolated", lambda *_, **__: Failure("crash", "no compiler"))
        with pytest.raises(EnvironmentFailed, match="crashed, the last one: no compiler"):
            worked()
        with pytest.raises(EnvironmentFailed):  # those put back, which are not put back once more
            worked()
    records = worked()
    assert [r.kind for r in records[:4]] == ["crashed"] * 4
    assert [r.attributes.get("again") for r in records[:4]] == [None, None, 0, 1]
    assert sum(r.counts for r in records) == space.settings.trials
    assert not any(r.kind == "crashed" for r in records[4:])
    assert said[1] == "trial 0 crashed: no compiler"


def test_trials_that_crash_side_by_side_are_all_put_back(tmp_path, space_file, monkeypatch):
    """Whichever thread of the worker did them."""

    def crashing(*_, stopping, **__):
        return Failure("interrupted" if stopping.is_set() else "crash", "no compiler")

    monkeypatch.setattr(worker, "CRASHES", 3)
    monkeypatch.setattr(trial_module, "isolated", crashing)
    with closing(open_search(load_space(space_file), tmp_path / "run", tell=str)) as search:
        with pytest.raises(EnvironmentFailed, match="crashed"):
            work_on(search, jobs=2)
        records = search.records()
    crashed = [r.number for r in records if r.kind == "crashed"]
    assert len(crashed) in (3, 4)
    assert {r.attributes["again"] for r in records if "again" in r.attributes} == set(crashed)


def test_what_crashed_is_tried_once_more_when_the_search_is_over(tmp_path, space_file, monkeypatch):
    """Crashes do not count, so all trials that were asked for are done without them."""
    real, looks = trial_module.isolated, list[str]()

    def crashing(function, *rest, **options):
        looks.append(function.__name__)
        if function is work.look and looks.count("look") <= 2:
            return Failure("crash", "killed by SIGSEGV")
        return real(function, *rest, **options)

    monkeypatch.setattr(trial_module, "isolated", crashing)
    space, records, _ = searched(space_file, tmp_path / "run")
    crashed = [r.number for r in records if r.kind == "crashed"]
    assert crashed
    assert counted(records) == space.settings.trials
    with closing(open_search(space, tmp_path / "run", tell=str)) as search:
        assert search.try_again(lambda one: one.kind == "crashed") == len(crashed)
        assert work_on(search).trials == len(crashed)
        again = [r for r in search.records() if "again" in r.attributes]
    assert [r.attributes["again"] for r in again] == crashed
    assert all(r.kind in ("finished", "stopped", "duplicate") for r in again)


def test_a_killed_trial_is_repeated_before_others_that_wait(tmp_path, space_file):
    """A search ends with as many trials as were asked for, however many wait behind it."""
    space_file.write_text(
        SPACE.replace("start: []", "start: [all]").replace("trials: 4", "trials: 2")
    )
    with closing(open_search(load_space(space_file), tmp_path / "run", tell=str)) as search:
        assert len(search._waiting()) > 2
        dead = search.ask()
        assert dead is not None
        dead.set_user_attr(WORKER, {**dead.user_attrs[WORKER], "pid": 2**30, "started": "1"})
        work_on(search)
        records = search.records()
    assert counted(records) == 2
    repeated = [r for r in records if r.history]
    assert [r.kind in ("finished", "stopped") for r in repeated] == [True]


def test_a_start_that_is_added_later_is_begun_with(tmp_path, space_file):
    searched(space_file, tmp_path / "run")
    text = space_file.read_text().replace("start: []", "start: [gated-deltanet]")
    space_file.write_text(text.replace("trials: 4", "trials: 5"))
    _, records, _ = searched(space_file, tmp_path / "run")
    assert [r.attributes.get("start") for r in records][-1] == "gated-deltanet"
    assert len(records) == len(searched(space_file, tmp_path / "run")[1])


def test_what_failed_is_tried_once_more_where_that_is_asked_for(tmp_path, space_file):
    """With other limits, say; it counts once, and is not taken for its own failure's duplicate."""
    text = space_file.read_text().replace("choose: [token, learned]", "choose: [token]")
    limits = "trials: 2\n  limits: {seconds: 0.01}"
    space_file.write_text(text.replace("trials: 4", limits))
    _, records, _ = searched(space_file, tmp_path / "run")
    failed = [r.number for r in records if r.kind == "failed"]
    assert len(failed) == counted(records) == 2
    space_file.write_text(text.replace("trials: 4", "trials: 2"))
    _, same, _ = searched(space_file, tmp_path / "run")
    assert same == records, "without that they stay as they are"
    search = open_search(load_space(space_file), tmp_path / "run", tell=lambda _: None)
    with closing(search):
        assert [search.try_again(lambda one: one.kind == "failed") for _ in range(2)] == [2, 0]
        assert counted(search.records()) == 0
        work_on(search)
        found = search.records()
        assert counted(found) == 2
        assert [r.attributes["again"] for r in found if "again" in r.attributes] == failed
        assert {r.kind for r in found[len(records) :]} <= {"finished", "stopped"}
        assert _reasons(found) == []


def test_a_rule_that_crashed_once_is_tried_again_and_no_third_time(
    tmp_path, space_file, monkeypatch
):
    text = re.sub("bias: .*", "bias: dot", space_file.read_text())
    text = text.replace("decay: {choose: [1, token, channel]}", "decay: token")
    text = re.sub(
        "optimizer: .*", "optimizer: {choose: [{rate: token}, {method: gd, rate: token}]}", text
    )
    space_file.write_text(text.replace("trials: 4", "trials: 4\n  sampler: grid"))
    real = trial_module.isolated

    def crashing(function, *rest, **options):
        if function is work.train_rung:
            return Failure("crash", "killed by SIGSEGV")
        return real(function, *rest, **options)

    monkeypatch.setattr(trial_module, "isolated", crashing)
    _, records, _ = searched(space_file, tmp_path / "run")
    assert [r.kind for r in records] == ["crashed", "crashed", "duplicate", "duplicate"]
    assert {r.why for r in records[2:]} == {"the rule of trials 0 and 1, which crashed"}
    assert not any(r.counts for r in records)


@pytest.mark.full
def test_a_budget_that_nothing_meets_is_refused_before_anything_is_trained(tmp_path, space_file):
    text = space_file.read_text().replace("constraints: none", "constraints: {state_bytes: 3}")
    space_file.write_text(text)
    with pytest.raises(UsageError, match="state_bytes"):
        searched(space_file, tmp_path / "run")
    assert not list((tmp_path / "run").glob("runs/*/*/run.json"))


@pytest.mark.full
def test_a_point_over_the_budget_costs_one_trial(tmp_path, space_file):
    """Where some points meet the budget, one that does not is told, and not trained."""
    text = space_file.read_text().replace("constraints: none", "constraints: {state_bytes: 400}")
    wide = "features: {choose: [identity, {kind: dpfp, nu: 2}]}"
    text = re.sub("retention: .*", wide, re.sub("bias: .*", "bias: dot", text))
    space_file.write_text(re.sub("rungs: .*", "rungs: [{steps: 2}]", text))
    _, records, said = searched(space_file, tmp_path / "run")
    over = [record for record in records if record.kind == "over budget"]
    assert over
    assert len(over) < len(records)
    assert all(record.why.startswith("state_bytes") and record.values is None for record in over)
    assert over[0].why in "".join(said)


def test_an_interrupted_trial_is_put_back(tmp_path, space_file):
    search = open_search(load_space(space_file), tmp_path / "run", tell=lambda _: None)
    trial = search.ask()
    search.stopping.set()
    from mnemic.search.study.trial import do

    with search.beating(trial):
        assert do(search, trial) == End("interrupted")
    first, waiting = search.records()
    assert (first.kind, first.counts) == ("interrupted", False)
    assert waiting.answers == first.answers
    assert search.ask().number == waiting.number
    search.close()


@pytest.mark.parametrize("name", ["tpe", "gp", "nsga2", "nsga3", "random"])
def test_every_sampler_walks_a_conditional_space(name, space_file):
    from mnemic.search.study.storage import _silence
    from mnemic.search.study.trial import _Trial

    _silence()
    root = load_space(space_file)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler(name, 0))
    seen = set()
    for index in range(24):
        trial = study.ask()
        asked = object.__new__(_Trial)
        asked.trial = trial
        answers = root.point(asked.suggest).answers
        seen.add(tuple(answers.items()))
        if index % 4 == 0:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, [float(answers["bias"] == "l2"), float(len(answers))])
    assert len(seen) > 8


def test_workers_that_ask_at_once_get_trials_of_their_own(space_file, tmp_path):
    space = load_space(space_file)
    searches = [open_search(space, tmp_path / "run", tell=str) for _ in range(2)]
    taken: list[int] = []
    together = threading.Barrier(8)

    def ask(search: Search) -> None:
        together.wait()
        taken.extend(search.ask().number for _ in range(4))

    try:
        for place in range(32):
            searches[0].study.enqueue_trial({"place": place})
        workers = [threading.Thread(target=ask, args=(searches[i % 2],)) for i in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        for search in searches:
            search.close()
    assert sorted(taken) == list(range(32))


def test_a_start_that_the_space_does_not_hold_is_told(tmp_path, space_file):
    space_file.write_text(SPACE.replace("start: []", "start: [deltanet, mamba2]"))
    heard: list[str] = []
    with closing(open_search(load_space(str(space_file)), tmp_path / "run", tell=heard.append)):
        pass
    assert heard[1:] == ["search.start: mamba2 is no point of the space, so it is not begun with"]
