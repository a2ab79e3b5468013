"""`mnemic search` and `mnemic leaderboard`, as one types them."""

import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import pytest

from mnemic.cli.search import _arguments
from mnemic.search.report import leaderboard, write
from mnemic.search.study import budget, worker

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"

SPACE = """\
mnemic: 1
name: tiny-space
bias: {choose: [dot, l2, {kind: huber, over: mixture, delta: {range: [0.1, 10], log: true}}]}
optimizer: {choose: [{rate: token}, {method: implicit, rate: token}]}
block: {heads: 1, feed_forward: none, convolution: 0}
search:
  tasks: {memorisation: tiny}
  model: {dim: 8, layers: 1}
  training: {batch: 4, eval_size: 16, warmup: 2}
  rungs: [{untrained: switching, rung: tiny, draws: 2, keep: 0.9}, {steps: 4, seeds: 2}]
  trials: 2
  start: [deltanet]
  confirm: {best: 1, seeds: 2}
"""


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    return path


def test_a_preview(mnemic, space):
    done = mnemic("search", space, "--preview", "--samples", "12")
    assert done.code == 0
    assert done.out.startswith("tiny-space: infinitely many points; of 12 drawn ")
    assert "loss that couples the coordinates" in done.out
    told = mnemic("search", space, "--preview", "--samples", "12", "--json").json
    assert told["size"] is None
    assert told["sampled"] == 12
    assert told["valid"] + sum(r["points"] for r in told["reasons"]) == 12


def test_a_search_a_confirmation_and_the_report_again(mnemic, space, tmp_path):
    run = tmp_path / "run"
    done = mnemic("search", space, "--run", run, "--jobs", "2", "--confirm", "--json")
    assert done.code == 0, done.err
    told = done.json
    assert told["study"] == "tiny-space"
    assert sum(told["ends"].values()) == told["trials"] >= 2
    assert told["best"][0]["seeds"] == 2
    assert "deltanet" in told["confirmed"]
    assert "on fresh seeds" in told["verdict"]
    assert "trial 0 " in done.err
    (run / "report.html").unlink()
    again = mnemic("search", space, "--run", run, "--report", "--json").json
    assert again["ends"] == told["ends"]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<h2>On fresh seeds</h2>" in page
    assert '<td>deltanet</td><td class="n">2</td>' in page


@pytest.mark.full
def test_the_page_of_a_kept_search_shows_all_that_is_known(mnemic, tmp_path):
    run = tmp_path / "recall"
    copytree(EXAMPLES / "recall", run)
    done = mnemic("search", EXAMPLES / "recall.yaml", "--run", run, "--report", "--json")
    assert done.code == 0, done.err
    page = (run / "report.html").read_text(encoding="utf-8")
    assert '<meta name="viewport"' in page
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    for part in (
        "The best",
        "Pareto fronts",
        "Importance of each choice",
        "Effects of each axis, all else equal",
        "Every trained point",
        "Curves",
    ):
        assert part in heads  # fmt: skip
    assert page.count("<section><h3>") == 5, "side by side, each with its rule"
    assert "Not told apart from the best with 95 % confidence" in page
    assert "no matched pair with" in page
    links = re.findall(r"""(?:src|href)=["'](?!#|data:)([^"']*)""", page)
    assert [link for link in links if not link.startswith("http://www.w3.org/")] == [], "offline"
    assert "@import" not in page


def test_errors_end_with_their_codes(mnemic, space, tmp_path):
    space.write_text(SPACE.replace("huber,", "hubber,"))
    done = mnemic("search", space)
    assert (done.code, "did you mean 'huber'?" in done.err) == (3, True)
    space.write_text(SPACE)
    url = "postgresql://nobody@127.0.0.1:1/db"
    done = mnemic("search", space, "--run", tmp_path / "run", "--storage", url)
    assert (done.code, "the storage cannot be used" in done.err) == (5, True)
    done = mnemic("search", space, "--sampler", "tp")
    assert (done.code, "did you mean 'tpe'?" in done.err) == (2, True)
    assert mnemic("search", space, "--grace", "3", "--heartbeat", "5").code == 2
    done = mnemic("search", space, "--launch", "slurm")
    assert (done.code, "needs --storage postgresql" in done.err) == (2, True)


def test_a_device_that_is_not_here_is_told_before_training(mnemic, space, tmp_path):
    run = tmp_path / "run"
    for command in (("search", space), ("leaderboard", space, "gla"), ("ablate", "gla")):
        done = mnemic(*command, "--run", run, "--device", "cdua")
        assert done.code == 2, command
        assert "search.device, or --device: read 'cdua', allowed: cpu" in done.err
    assert not (run / "runs").exists()
    assert not (run / "leaderboard.json").exists()


def test_a_leaderboard(mnemic, space, tmp_path):
    text = SPACE.replace("constraints", "constraints").replace("start: [deltanet]", "start: []")
    space.write_text(text.replace("{steps: 4, seeds: 2}", "{steps: 2, seeds: 2}"))
    out = tmp_path / "board.md"
    names = ("gated-deltanet", "titans")
    done = mnemic("leaderboard", space, *names, "--run", tmp_path / "board", "-o", out)
    assert done.code == 0, done.err
    text = out.read_text(encoding="utf-8")
    within, over = text.split("## Over the budget")
    assert "| 1 | gated-deltanet |" in within
    assert "[81.7]" in within, "what the paper has"
    assert "state_bytes" in over.split("## What the papers claim")[0]
    again = mnemic("leaderboard", space, *names, "--run", tmp_path / "board", "--json")
    assert [entry["name"] for entry in again.json["entries"]] == list(names)
    assert all(len(entry["runs"]) == 2 for entry in again.json["entries"])
    assert again.json["tasks"] == {}, "too few specs to tell"


@pytest.mark.full
def test_a_leaderboard_in_one_block(mnemic, space, tmp_path):
    plain = SPACE.replace("block: {heads: 1, feed_forward: none, convolution: 0}\n", "")
    plain = plain.replace("bias: {choose", "readout: {memory: after}\n#").replace("optimizer:", "#")
    space.write_text(plain.replace("{steps: 4, seeds: 2}", "{steps: 2, seeds: 2}"))
    block, board = tmp_path / "block.yaml", tmp_path / "board"
    block.write_text("mnemic: 1\nname: b\nblock: {heads: 1, convolution: 2, feed_forward: none}\n")
    names = ("linear-attention", "deltanet")
    few = mnemic("leaderboard", space, *names, "--block", block, "--run", board)
    assert (few.code, "at least 3; give --seeds 3" in few.err) == (2, True)
    asked = (*names, "--block", block, "--run", board, "--seeds", "3", "--rates", "1e-3,1e-2")
    asked += ("--budget", "parameters=2x", "--json")
    alone = mnemic("leaderboard", space, *asked, "--no-own").json
    assert [len(entry["runs"]) for entry in alone["entries"] + alone["own"]] == [3, 3, 0, 0]
    done = mnemic("leaderboard", space, *asked)
    assert done.code == 0, done.err
    found = done.json
    assert found["entries"] == alone["entries"]
    assert [entry["name"] for entry in found["entries"]] == list(names)
    assert {entry["rate"] for entry in found["entries"]} <= {1e-3, 1e-2}
    assert [len(entry["runs"]) for entry in found["entries"] + found["own"]] == [3] * 4
    assert set(found["first"]) <= set(names)
    assert found["entries"][0]["look"]["parameters"] < found["own"][0]["look"]["parameters"]
    other = (*names, "--block", "deltanet", "--run", board, "--seeds", "3", "--report")
    refused = mnemic("leaderboard", space, *other)
    assert (refused.code, "differs in spec.block" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("where", "command"),
    [
        ((worker, "work_on"), ("search",)),
        ((write, "confirm_best"), ("search", "--report", "--confirm")),
        ((leaderboard, "leaderboard"), ("leaderboard",)),
        ((leaderboard, "leaderboard"), ("ablate", "deltanet", "--axes", "order")),
    ],
)
def test_an_interrupted_search_says_how_it_goes_on(
    mnemic, space, tmp_path, monkeypatch, where, command
):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(*where, stopped)
    run = tmp_path / "run"
    given = () if command[0] == "ablate" else (space,)
    done = mnemic(command[0], *given, *command[1:], "--run", run)
    assert (done.code, done.out) == (130, "")
    told = f"mnemic: {run}: what is finished is kept, what was in progress is done again: "
    assert done.err.endswith(f"{told}the same command goes on\nmnemic: interrupted\n")


def test_a_search_in_one_block_is_another_study(mnemic, space, tmp_path):
    run = tmp_path / "run"
    assert mnemic("search", space, "--run", run, "--trials", "1").code == 0
    done = mnemic("search", space, "--run", run, "--block", "deltanet")
    assert (done.code, "differs in spec.block" in done.err) == (2, True)


def test_a_budget_that_no_point_meets_is_said_at_once(mnemic, space, tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "LOOKS", 3)
    done = mnemic("search", space, "--run", tmp_path / "run", "--budget", "state=1")
    assert done.code == 2
    assert "none of 3 points is within the budget of state_bytes at most 1" in done.err
    kept = ("search", space, "--run", tmp_path / "run", "--trials", "1", "--budget")
    again = mnemic(*kept, "state=1")
    assert (again.code, again.err) == (2, done.err), "no study was begun"
    raised = mnemic(*kept, "state=100x")
    assert raised.code == 0, raised.err
    wrong = mnemic("search", space, "--budget", "stat=1")
    assert (wrong.code, "did you mean 'state'?" in wrong.err) == (2, True)
    wrong = mnemic("search", space, "--budget", "state=many")
    bound = "must be a whole number above 0, or a multiple of the reference's, as 1.1x: read 'many'"
    assert (wrong.code, wrong.err) == (2, f"mnemic: --budget: {bound}\n")


def test_a_submitted_command_is_this_one_without_its_cluster():
    typed = ["mnemic", "search", "a.yaml", "--launch", "slurm", "--run", "x", "--workers=4",
             "--storage", "postgresql://h/d", "--hours", "3"]  # fmt: skip
    kept = ["a.yaml", "--run", "x", "--storage", "postgresql://h/d"]
    assert _arguments(typed) == kept


def test_a_cluster_is_asked_for_what_the_trials_may_take(mnemic, space, tmp_path, monkeypatch):
    """For each of the trials at a time what limits allow, and a program's own beside."""
    asked, given = {}, []

    class Executor:
        def __init__(self, folder, cluster):
            asked["cluster"] = cluster

        def update_parameters(self, **told):
            asked.update(told)

        batch = nullcontext

        def submit(self, function, arguments):
            given.append(arguments)
            return SimpleNamespace(job_id=len(given))

    monkeypatch.setitem(sys.modules, "submitit", SimpleNamespace(AutoExecutor=Executor))
    monkeypatch.setattr(sys, "argv", ["mnemic", "search", str(space), "--launch", "local"])
    space.write_text(SPACE.replace("  trials: 2", "  trials: 2\n  limits: {memory: 2.5}"))
    run = tmp_path / "run"
    done = mnemic("search", space, "--launch", "local", "--workers", "3", "--jobs", "4",
                  "--hours", "1.5", "--run", run, "--json")  # fmt: skip
    assert done.json == {"jobs": ["1", "2", "3"], "folder": str(run)}
    told = {"cluster": "local", "mem_gb": 15, "cpus_per_task": 4, "timeout_min": 90}
    assert {name: asked[name] for name in told} == told
    assert given == [[str(space)]] * 3


def test_the_schema_of_spaces(mnemic, tmp_path):
    path = tmp_path / "space.schema.json"
    assert mnemic("schema", "--space", "-o", path).code == 0
    assert '"urn:mnemic:space:1"' in path.read_text()
    assert mnemic("schema", "-o", path).code == 0, "ours, and so replaced"


def test_an_ablation(mnemic, tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "mnemic: 1\nname: tiny\nsearch:\n  tasks: {memorisation: tiny}\n"
        "  model: {dim: 8, layers: 1}\n  training: {batch: 4, eval_size: 16, warmup: 2}\n"
        "  constraints: none\n  rungs: [{steps: 2, seeds: 2}]\n"
    )
    listed = mnemic(
        "ablate", "linear-attention", "--axes", "weights,order", "--list", "--json"
    ).json
    assert [one["axis"] for one in listed["neighbours"]] == ["weights"]
    assert {one["axis"] for one in listed["dropped"]} == {"weights", "order"}
    run, out = tmp_path / "run", tmp_path / "ablation.md"
    asked = ("linear-attention", "--axes", "weights", "--space", path, "--run", run)
    done = mnemic("ablate", *asked, "--jobs", 2, "-o", out)
    assert done.code == 0, done.err
    assert "| weights | weights uniform → " in out.read_text(encoding="utf-8")
    found = mnemic("ablate", *asked, "--report", "--json").json
    assert [one["mean"]["seeds"] for one in found["effects"]] == [2]
    kept = json.loads((run / "leaderboard.json").read_text(encoding="utf-8"))
    kept[found["effects"][0]["name"]] |= {"runs": [], "failed": {"memorisation": "time: too long"}}
    (run / "leaderboard.json").write_text(json.dumps(kept), encoding="utf-8")
    (left,) = mnemic("ablate", *asked, "--json").json["effects"]
    assert (left["mean"], left["why"]) == (None, "time: too long")
    assert mnemic("ablate", *asked, "--again", "--json").json["effects"] == found["effects"]
    wrong = mnemic("ablate", "linear-attention", "--axes", "los")
    assert (wrong.code, "did you mean 'loss'?" in wrong.err) == (2, True)


def test_effects_and_fronts_of_a_kept_search(mnemic, tmp_path):
    out = tmp_path / "effects.md"
    done = mnemic("effects", EXAMPLES / "recall", "-o", out)
    assert done.code == 0, done.err
    text = out.read_text(encoding="utf-8")
    assert "## Importance" in text
    assert "(effects-effects.svg)" in text
    assert (tmp_path / "effects-effects.svg").read_text(encoding="utf-8").startswith("<svg")
    found = mnemic("pareto", EXAMPLES / "recall", "--json").json
    assert [front["cost"] for front in found["fronts"]] == ["state_bytes", "flops", "step_seconds"]
    assert set(found["overall"]) >= {p["name"] for f in found["fronts"] for p in f["points"]}
    shown = mnemic("effects", EXAMPLES / "recall", "-o", tmp_path / "both.md", "--json").json
    assert (tmp_path / "both.md").read_text(encoding="utf-8").count("\n") == text.count("\n")
    assert shown["main"]
    wrong = mnemic("effects", EXAMPLES / "recall", "--study", "recal")
    assert (wrong.code, "did you mean 'recall'?" in wrong.err) == (2, True)
