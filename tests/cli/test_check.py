"""`mnemic check`: summaries, every error in full, exit codes, JSON, speed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from fuzz_draw import drawn
from packaged import CORE

from mnemic.cli import facts
from mnemic.dsl.catalogue import names
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load

SUMMARY = """\
gated-deltanet: valid (Gated DeltaNet), {hash}
  features     identity
  memory       linear
  bias         l2
  weights      uniform
  window       1
  retention    {decay: token, order: before}
  optimizer    {rate: token}
"""

SHAPE = {
    "type": "object",
    "required": ["specs"],
    "additionalProperties": False,
    "properties": {
        "specs": {
            "type": "array",
            "items": {
                "oneOf": [
                    {
                        "required": [
                            "source",
                            "valid",
                            "name",
                            "title",
                            "hash",
                            "axes",
                            "warnings",
                        ],
                        "properties": {
                            "valid": {"const": True},
                            "hash": {"pattern": "^[0-9a-f]{64}$"},
                            "axes": {"type": "object"},
                        },
                    },
                    {
                        "required": ["source", "valid", "error"],
                        "properties": {
                            "valid": {"const": False},
                            "error": {"required": ["error", "exit_code", "message"]},
                        },
                        "additionalProperties": {"type": "string"},
                    },
                ]
            },
        }
    },
}


def hashed(summary, name):
    """The summary with the hash of a spec, which every extension of the language changes."""
    return summary.replace("{hash}", spec_hash(load(name))[:12])


def test_a_valid_spec(mnemic):
    done = mnemic("check", "gated-deltanet")
    assert (done.code, done.err) == (0, "")
    assert done.out == hashed(SUMMARY, "gated-deltanet")


def test_some_packaged_specs_are_valid(mnemic):
    some = CORE[::5]
    done = mnemic("check", *some, "--json")
    assert done.code == 0
    assert [entry["name"] for entry in done.json["specs"]] == list(some)
    jsonschema.validate(done.json, SHAPE)


@pytest.mark.full
def test_every_packaged_spec_is_valid(mnemic):
    done = mnemic("check", *names(), "--json")
    assert done.code == 0
    assert [entry["name"] for entry in done.json["specs"]] == list(names())
    jsonschema.validate(done.json, SHAPE)


def test_a_misspelt_name(mnemic):
    done = mnemic("check", "gated-deltanett")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "mnemic: no packaged spec is called 'gated-deltanett'; did you mean 'gated-deltanet'?\n"
    )


def test_an_unknown_key(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mnemic: 1\nname: mine\nbais: l2\n")
    done = mnemic("check", path)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"{path}:3:1: ")
    assert "'bais'" in done.err
    assert done.err.endswith("did you mean 'bias'?\n")


def test_all_issues_at_once_one_a_line(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mnemic: 1\nname: mine\nbias: hubber\nmemory: liner\n")
    done = mnemic("check", path)
    assert done.code == 3
    assert [line.split(": ")[0] for line in done.err.splitlines()] == [f"{path}:3:7", f"{path}:4:9"]


def test_several_specs_are_each_told_and_the_worst_code_counts(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mnemic: 1\nname: mine\nbias: hubber\n")
    done = mnemic("check", "nope", path, "lp", "--json")
    assert done.code == 3
    assert [entry["valid"] for entry in done.json["specs"]] == [False, False, True]
    assert [e["error"]["exit_code"] for e in done.json["specs"][:2]] == [2, 3]
    assert done.json["specs"][1]["error"]["issues"][0]["nearest"] == "huber"
    jsonschema.validate(done.json, SHAPE)
    assert done.err == ""


def test_a_folder_is_checked_by_several_processes_as_one_after_another(
    mnemic, tmp_path, monkeypatch
):
    """Valid ones, those with warnings, without a rule, without code, and files that are no spec."""
    folder = tmp_path / "specs"
    folder.mkdir()
    for number in range(4):
        spec = {"mnemic": 1, **drawn(3, number), "name": f"drawn-{number}"}
        (folder / f"{number}.yaml").write_text(yaml.safe_dump(spec))
    (folder / "4.yml").write_text("name: unclear\nbias: l3\n")
    (folder / "notes.txt").write_text("no spec")
    for number, text in enumerate((RULELESS, TREE), 5):
        (folder / f"{number}.yaml").write_text(text)
    files = sorted(str(path) for path in folder.iterdir() if path.suffix != ".txt")
    monkeypatch.setenv("MNEMIC_CACHE", str(tmp_path / "one"))
    alone = mnemic("check", *files)
    monkeypatch.setenv("MNEMIC_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(facts, "EACH", 2)
    monkeypatch.setattr(facts, "_cores", lambda: 2)
    cold, warm = mnemic("check", folder), mnemic("check", folder)
    assert alone.code == 3
    assert "optimizer.method: the gradient flow is solved for an error" in alone.err
    assert "bias: read 'l3'" in alone.err
    assert "mine: valid, but not compiled" in alone.out
    assert (cold.code, cold.out, cold.err) == (alone.code, alone.out, alone.err)
    assert (warm.code, warm.out, warm.err) == (alone.code, alone.out, alone.err)
    kept = facts.read_known(next((tmp_path / "other").rglob("warnings.json")))
    assert 0 < len(kept) < len(files)


def test_a_folder_without_specs(mnemic, tmp_path):
    (tmp_path / "notes.txt").write_text("no spec")
    done = mnemic("check", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"mnemic: {tmp_path}: no file there ends in .yaml or .yml\n"


def test_a_folder_that_has_the_name_of_a_packaged_spec(mnemic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("deltanet").mkdir()
    assert mnemic("check", "deltanet").out.startswith("deltanet: valid")


def test_a_file_that_is_not_there(mnemic, tmp_path):
    done = mnemic("check", tmp_path / "none.yaml")
    assert (done.code, done.out) == (2, "")
    assert str(tmp_path / "none.yaml") in done.err
    assert done.err.count("\n") == 1


def test_a_loss_without_a_bound_is_warned_of_once(mnemic):
    done = mnemic("check", "lp")
    assert (done.code, done.err) == (0, "")
    assert done.out == hashed(SUMMARY_OF_LP, "lp")
    told = mnemic("check", "lp", "--derive").out
    assert "  class        residual: " in told
    assert told.count("warning: ") == 1


SUMMARY_OF_LP = """\
lp: valid (ℓ_p attentional bias), {hash}
  features     identity
  memory       linear
  bias         {kind: lp, p: 3.0}
  weights      uniform
  window       1
  retention    l2
  optimizer    {rate: {from: input, activation: sigmoid(x)/16}}
  warning: ℓ″ has no bound, so no rate is safe: steps contract for small errors only, here under \
|ŷ − v| = 5.33; beyond, the memory may blow up within tens of tokens. Read: ηₜ in (0, 0.0625). Ask \
for optimizer.rate: {normalized: true}, which is η/(1 + η ℓ″‖φ‖²).
"""

LOOSE = """\
mnemic: 1
name: loose
bias: l2
retention: {decay: token, order: after}
optimizer: {rate: {from: input, activation: softplus}}
"""


@pytest.mark.usefixtures("cache")
def test_a_rate_outside_the_bound(mnemic, tmp_path, monkeypatch):
    """In both commands, the first time and from the cache, and no error."""
    path = tmp_path / "loose.yaml"
    path.write_text(LOOSE)
    warning = (
        "Outside the stable range: with αₜ in (0, 1); ηₜ in (0, ∞); ‖φ‖² ≤ 1 (unit keys): ηₜ·‖φ‖² "
        "may reach ∞, where the bound is 1 (= 1 + αₜ there). Nearest mend: optimizer.rate: {from: "
        "input, activation: 1*sigmoid(x)}."
    )
    assert f"  Warnings\n    {warning}\n" in f"  {mnemic('derive', path).out}".replace("\n", "\n  ")
    first = mnemic("check", path)
    assert (first.code, first.out.splitlines()[-1]) == (0, f"  warning: {warning}")
    monkeypatch.setattr("mnemic.pipeline.derive", None)
    assert mnemic("check", path).out == first.out
    assert mnemic("check", path, "--json").json["specs"][0]["warnings"] == [warning]


RULELESS = "mnemic: 1\nname: mine\nbias: huber\noptimizer: {method: flow}\n"


def test_a_spec_without_a_rule_is_refused_at_its_place(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(RULELESS)
    done = mnemic("check", path)
    assert (done.code, done.out) == (3, "")
    start = f"{path}:4:21: optimizer.method: the gradient flow is solved for an error"
    assert done.err.startswith(start)
    assert mnemic("derive", path).err.startswith(start)
    assert mnemic("compile", path, "-o", tmp_path / "out").err.startswith(start)


TREE = "mnemic: 1\nname: mine\nbias: l2\nreadout: {levels: token}\noptimizer: {inner_steps: 2}\n"


def test_a_rule_that_no_code_is_written_for_is_derived_and_told_of(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(TREE)
    reason = (
        f"{path}:4:19: readout.levels: a tree of levels beside a window, momentum, an anchor, "
        "several steps, an exponential rate or a diagonal memory is derived but not compiled yet"
    )
    done = mnemic("check", path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("mine: valid, but not compiled, ")
    assert f"  not compiled: {reason}\n" in done.out
    assert mnemic("check", path).out == done.out, "from what is kept"
    other = tmp_path / "other.yaml"
    other.write_text(TREE.replace("mine", "other"))
    told = mnemic("check", other).out
    assert f"  not compiled: {reason.replace('mine.yaml', 'other.yaml')}\n" in told
    (entry,) = mnemic("check", path, "--json").json["specs"]
    assert (entry["valid"], entry["compiles"], entry["refused"]) == (True, False, [reason])
    derived = mnemic("derive", path)
    assert derived.code == 0
    assert "prediction" in derived.out
    assert f"not compiled: {reason}\n" in derived.out
    assert mnemic("derive", path, "--json").json["refused"] == [reason]
    refused = mnemic("compile", path, "-o", tmp_path / "out")
    assert (refused.code, refused.err) == (3, f"{reason}\n")


def test_a_rule_that_no_code_is_written_for_has_no_forms(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mnemic: 1\nname: mine\nbias: l2\nretention: {normalize: rows}\n")
    assert "  forms        none yet\n" in mnemic("check", "--derive", path).out
    assert "  forms: none yet\n  not compiled: normalising" in mnemic("derive", path).out
    found = json.loads(mnemic("derive", "--json", path).out)
    assert (found["class"]["forms"], found["warnings"]) == ([], [])
    assert found["missing"].startswith("normalising a memory that starts at zero")


def test_a_retention_without_forms_is_placed(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    text = "mnemic: 1\nname: mine\nbias: l2\nretention: {local: {bregman: -log(w)}}\n"
    path.write_text(text)
    assert f"  not compiled: {path}:4:30: retention.local.bregman: " in mnemic("check", path).out


def test_why_a_rule_is_not_compiled_is_told_once(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mnemic: 1\nname: mine\nretention: {local: {bregman: w**3}}\n")
    done = mnemic("check", path)
    assert done.out.count("no memory inside the domain minimises the problem") == 1
    (entry,) = mnemic("check", path, "--json").json["specs"]
    assert (len(entry["refused"]), entry["warnings"]) == (1, [])


def test_reasons_hold_readable_mathematics(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("mnemic: 1\nname: mine\nkeys: {erase: own}\nbias: {expr: 'e**4/4'}\n")
    done = mnemic("check", path)
    assert done.err == (
        f"{path}:3:15: keys.erase: erase and write keys (and momentum on the write) need an error "
        "that splits into prediction and value; e = (ŷ − v)³ does not\n"
    )


def test_derive_in_json(mnemic):
    (entry,) = mnemic("check", "lp", "--derive", "--json").json["specs"]
    assert entry["class"] == "residual"
    assert entry["forms"] == ["recurrent", "chunk"]
    assert [(k["form"], k["kernel"], k["gradient"], k["why"]) for k in entry["kernels"]] == [
        ("chunk", True, True, None), ("token", True, True, None),
    ]  # fmt: skip
    assert entry["warnings"]


def test_fused_kernels_and_why_there_are_none(mnemic):
    told = mnemic("check", "lp", "--derive").out
    assert "  fused kernel chunk, with gradient\n  fused kernel token, with gradient\n" in told
    told = mnemic("derive", "gsa").out
    assert "\n  fused kernel: chunk: none (slots join two operators" in told
    (chunk, _) = mnemic("derive", "softmax-attention", "--json").json["kernels"]
    assert chunk["why"] == "PyTorch's own attention is its kernel"
    assert not chunk["kernel"]


def test_it_is_fast(shell):
    """Each run next to one of its libraries; torch takes ten times theirs.

    The best of five pairs, since what shares the machine slows either of a pair, one at a time.
    """
    libraries = (sys.executable, "-c", "import pydantic.main, typer, yaml")
    ratios = []
    for _ in range(5):
        own = _processor_time(lambda: shell("check", "gated-deltanet").code)
        theirs = _processor_time(lambda: subprocess.run(libraries, check=False).returncode)
        ratios.append(own / theirs)
    assert min(ratios) < 4, ratios


def _processor_time(run):
    """Of a process and its children: other work does not count."""
    before = os.times()
    assert run() == 0
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system


def test_a_relative_path_beside_a_base(mnemic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("extends: gated-deltanet\nname: mine\nbias: dot\n")
    done = mnemic("check", "mine.yaml")
    assert done.code == 0
    assert "  bias         dot\n" in done.out


@pytest.mark.parametrize("rule", ["W = ", "W = W +", ""])
def test_a_published_equation_that_cannot_be_read_is_an_error(mnemic, tmp_path, rule):
    path = tmp_path / "mine.yaml"
    entry = f'published: [{{where: "(1)", rule: "{rule}"}}]'
    path.write_text(f"mnemic: 1\nname: mine\nbias: l2\n{entry}\n", encoding="utf-8")
    done = mnemic("check", path)
    assert done.code == 3
    assert "published[0].rule" in done.err


def test_all_that_is_wrong_is_told_in_the_order_of_the_lines(mnemic, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "mnemic: 1\nname: mine\npublished: [{where: (1), rule: W = W +}]\n"
        "retention: {decay: tokn}\noptimizer: {rate: -1}\nblock: {segment: 16}\nspeed: 3\n"
    )
    done = mnemic("check", path)
    assert done.code == 3
    lines = [int(line.removeprefix(f"{path}:").split(":")[0]) for line in done.err.splitlines()]
    assert lines == [3, 4, 5, 6, 7]
