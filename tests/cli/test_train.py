"""`mnemic train`: a run, its files, resuming, and what it refuses."""

import json

import pytest

from mnemic.cli import train as command
from mnemic.cli import train_progress

TINY = (
    "--task", "mqar", "--dim", "16", "--layers", "1", "--batch", "4", "--steps", "3",
    "--task-option", "vocabulary=32", "--task-option", "pairs=2", "--task-option", "length=16",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_run(mnemic, tmp_path):
    done = mnemic("train", "deltanet", *TINY)
    assert done.code == 0
    assert done.out.startswith("accuracy ")
    assert done.err.startswith("step 3: loss ")
    folder = tmp_path / "runs" / "deltanet-mqar-0"
    assert {"checkpoint.pt", "curve.csv", "curve.png", "result.json"} <= {
        path.name for path in folder.iterdir()
    }
    result = json.loads((folder / "result.json").read_text())
    assert result["task"]["options"]["pairs"] == 2
    assert result["metadata"]["spec"]["name"] == "deltanet"
    assert result["options"]["stop_at"] == 0.995
    assert result["options"]["time_limit"] == 600


def test_json_and_resume(mnemic, tmp_path):
    first = mnemic("train", "deltanet", *TINY, "--run", "r", "--json")
    assert (first.code, first.json["steps"], first.json["run"]) == (0, 3, "r")
    again = mnemic("train", "deltanet", *TINY, "--steps", "5", "--run", "r", "--resume", "--json")
    assert (again.code, again.json["steps"]) == (0, 5)
    assert "resumed at step 3 of 5" in again.err


def test_an_earlier_run(mnemic):
    assert mnemic("train", "deltanet", *TINY, "--run", "r").code == 0
    done = mnemic("train", "deltanet", *TINY, "--run", "r")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("mnemic: r: holds an earlier run: --resume goes on with it, --rep")
    assert mnemic("train", "deltanet", *TINY, "--run", "r", "--replace").code == 0


def test_options_of_text_are_not_ignored_on_a_task(mnemic):
    """Nor those of a task on text; what is refused is what --help sets under the other."""
    done = mnemic("train", "deltanet", *TINY, "--heads", "2", "--precision", "bfloat16")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "mnemic: --heads, --precision: only with --data, not with --task "
        "(a task's own options: --task-option NAME=VALUE)\n"
    )
    done = mnemic("train", "deltanet", "--data", "books", "--rung", "tiny")
    assert done.code == 2
    assert done.err == "mnemic: --rung: only with --task, not with --data\n"


def test_a_foreign_folder(mnemic, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.tex").write_text("mine")
    done = mnemic("train", "deltanet", *TINY, "--run", "r")
    assert done.code == 2
    assert done.err == ("mnemic: r: holds files that mnemic did not write; choose another folder\n")


def test_a_wrong_task(mnemic):
    done = mnemic("train", "deltanet", "--task", "mqa")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("mnemic: no such task: read 'mqa', allowed: bytes, compression, ")
    assert done.err.endswith("; did you mean 'mqar'?\n")


def test_a_rung_and_options_over_it(mnemic):
    tiny = ("--dim", "16", "--layers", "1", "--batch", "4", "--steps", "1", "--json")
    done = mnemic(
        "train", "deltanet", "--task", "swaps", "--rung", "curriculum", "--task-option", "start=4",
        "--task-option", "length=8", *tiny,
    )  # fmt: skip
    assert done.code == 0
    assert done.json["task"]["options"] == {"elements": 5, "length": 8, "start": 4}
    done = mnemic("train", "deltanet", "--task", "swaps", "--rung", "tinny")
    assert done.err.startswith("mnemic: no rung of swaps: read 'tinny', allowed: tiny, ")


def test_a_task_of_the_memory_alone(mnemic):
    done = mnemic("train", "deltanet", "--task", "switching")
    assert done.code == 2
    assert done.err == (
        "mnemic: switching: a task of the memory alone, which no model is trained on\n"
    )


def test_a_wrong_task_option(mnemic):
    done = mnemic("train", "deltanet", "--task", "mqar", "--task-option", "pair=2")
    assert done.code == 2
    assert done.err == (
        "mnemic: no option of mqar: read 'pair', allowed: vocabulary, pairs, length, power, fill; "
        "did you mean 'pairs'?\n"
    )
    done = mnemic("train", "deltanet", "--task", "mqar", "--task-option", "pairs")
    assert done.err == "mnemic: --task-option: needs NAME=VALUE: read 'pairs'\n"


def test_a_rate_out_of_range_as_json(mnemic):
    done = mnemic("train", "deltanet", "--task", "mqar", "--lr", "-1", "--json")
    assert (done.code, done.err) == (2, "")
    assert done.json["message"] == "lr: must be finite and above 0: read '-1.0'"


def test_no_task(mnemic):
    done = mnemic("train", "deltanet")
    assert done.code == 2
    assert "--task" in done.err


def test_ctrl_c(mnemic, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "configured", interrupted)
    done = mnemic("train", "deltanet", *TINY)
    assert (done.code, done.out, done.err) == (130, "", "mnemic: interrupted\n")


def test_an_interrupted_run_says_how_it_goes_on(mnemic, monkeypatch):
    step = train_progress.Lines.step

    def pressed(lines, done, loss):
        step(lines, done, loss)
        if done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(train_progress.Lines, "step", pressed)
    done = mnemic("train", "deltanet", *TINY, "--steps", "5")
    assert (done.code, done.out) == (130, "")
    assert done.err == (
        "saved at step 2 of 5: the same command with --resume goes on\nmnemic: interrupted\n"
    )


def test_a_spec_with_an_infinite_rate_keeps_its_result(mnemic, tmp_path):
    """JSON has no infinity; it stands as YAML spells it."""
    assert mnemic("train", "nlms", *TINY, "--steps", "2").code == 0
    result = json.loads((tmp_path / "runs" / "nlms-mqar-0" / "result.json").read_text())
    assert result["metadata"]["spec"]["optimizer"]["rate"] == ".inf"


def test_the_block_of_a_spec_is_the_models(mnemic, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nextends: deltanet\n"
        "block: {hybrid: gate, attention_window: 4, feed_forward: solu}\n"
    )
    done = mnemic("train", "mine.yaml", *TINY)
    assert done.code == 0
    result = json.loads((tmp_path / "runs" / "mine-mqar-0" / "result.json").read_text())
    assert result["metadata"]["model"]["feed_forward"] == "solu"
    assert result["metadata"]["spec"]["block"]["hybrid"] == "gate"


def test_a_device_that_is_none_or_not_here(mnemic, tmp_path):
    told = ("train", "gla", "--task", "mqar", "--run", tmp_path / "run", "--device")
    done = mnemic(*told, "cdua")
    assert done.code == 2
    assert done.err.startswith("mnemic: --device: read 'cdua', allowed: cpu")
    done = mnemic(*told, "meta")
    assert done.code == 5
    assert "--device: read 'meta', but torch" in done.err
    assert not (tmp_path / "run").exists()
