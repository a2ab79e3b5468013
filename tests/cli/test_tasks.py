"""`mnemic tasks`: the list, one task in words, a task of one's own."""

import sys
from pathlib import Path

import pytest

from mnemic.search import tasks

OWN = str(Path(__file__).parents[2] / "examples" / "own_task.py")


@pytest.fixture
def _registry(monkeypatch):
    """What a test registers is forgotten."""
    monkeypatch.setattr(tasks, "_TASKS", dict(tasks._TASKS))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("mnemic_own_task_"):
            del sys.modules[name]


def test_the_list(mnemic):
    done = mnemic("tasks")
    assert done.code == 0
    rows = {line.split()[0]: line for line in done.out.splitlines()}
    assert {*tasks.names(), *tasks.memory_names()} <= rows.keys()
    assert rows["swaps"].split()[1:5] == ["model", "accuracy", "0.25", "1"]
    assert "tiny, small, published" in rows["swaps"]
    assert rows["switching"].split()[1] == "memory"


def test_the_list_as_json(mnemic):
    found = {row["name"]: row for row in mnemic("tasks", "--json").json["tasks"]}
    assert found["bytes"]["higher_is_better"] is False
    assert found["mqar"]["ladder"]["figure-512"] == {"pairs": 64, "length": 512}
    assert all(row["source"] and row["title"] for row in found.values())


@pytest.mark.parametrize("name", [*tasks.names(), *tasks.memory_names()])
def test_one_task_in_words(mnemic, name):
    done = mnemic("tasks", name)
    assert done.code == 0
    assert done.out.startswith(f"{name}: {tasks.find(name).title}\n")
    assert "\nrungs:\n  tiny: " in done.out
    assert "example at tiny; " in done.out
    assert "→" in done.out.split("example at tiny; ")[1].split("\n", 1)[1]


def test_an_example_at_a_rung_with_options(mnemic):
    done = mnemic("tasks", "swaps", "--rung", "published", "--task-option", "elements=3", "--json")
    assert done.code == 0
    assert done.json["chosen"] == {"elements": 3, "length": 16, "start": 0}
    assert done.json["options"][0] == {
        "name": "elements", "default": 5, "allowed": [2, 512], "kind": "int",
        "about": "elements, and places (n)",
    }  # fmt: skip
    assert len(done.json["example"]) == 16
    again = mnemic("tasks", "swaps", "--rung", "published", "--task-option", "elements=3", "--json")
    assert again.json["example"] == done.json["example"]
    other = mnemic("tasks", "swaps", "--rung", "published", "--seed", "1", "--json")
    assert other.json["example"] != done.json["example"]


def test_an_unknown_task(mnemic):
    done = mnemic("tasks", "swap")
    assert done.code == 2
    assert done.err.endswith("; did you mean 'swaps'?\n")
    done = mnemic("tasks", "swaps", "--task-option", "elements=1")
    assert (
        done.err == "mnemic: elements: an integer in [2, 512]: elements, and places (n): read '1'\n"
    )


@pytest.mark.usefixtures("_registry")
def test_a_class_in_a_file_is_a_task_everywhere(mnemic, tmp_path, monkeypatch):
    """One registered class gives the description, the options with their errors, and training."""
    monkeypatch.chdir(tmp_path)
    told = mnemic("tasks", OWN)
    assert told.code == 0
    assert told.out.startswith("parity: parity of the bits so far\n")
    assert "length = 64, [1, 65536]: bits in a sequence" in told.out
    assert "parity" in {row["name"] for row in mnemic("tasks", "--json").json["tasks"]}
    wrong = mnemic("train", "deltanet", "--task", OWN, "--task-option", "length=0")
    assert wrong.err == "mnemic: length: an integer in [1, 65536]: bits in a sequence: read '0'\n"
    done = mnemic(
        "train", "deltanet", "--task", OWN, "--rung", "tiny", "--dim", "16", "--layers", "1",
        "--batch", "8", "--steps", "2", "--json",
    )  # fmt: skip
    assert (done.code, done.json["task"]["name"], done.json["chance"]) == (0, "parity", 0.5)
    assert done.json["run"] == "runs/deltanet-parity-0"


@pytest.mark.usefixtures("_registry")
def test_files_that_are_no_tasks(mnemic, tmp_path):
    missing = tmp_path / "none.py"
    assert mnemic("tasks", str(missing)).err == f"mnemic: {missing}: no such file\n"
    empty = tmp_path / "empty.py"
    empty.write_text("")
    done = mnemic("tasks", str(empty))
    assert (done.code, done.err) == (2, f"mnemic: {empty}: registers 0 tasks, must register one\n")
    taken = tmp_path / "taken.py"
    taken.write_text(Path(OWN).read_text().replace('"parity"', '"mqar"'))
    assert mnemic("tasks", str(taken)).err == "mnemic: a task named 'mqar' exists already\n"
