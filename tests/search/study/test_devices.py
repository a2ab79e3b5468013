"""Where training runs: told to every run, kept with its time, and no part of what a run is."""

from types import SimpleNamespace

import pytest

from mnemic.cli.overrides import overridden
from mnemic.models import train as trainer
from mnemic.models.device import Place
from mnemic.search.report import figures
from mnemic.search.report.pareto import fronts, page
from mnemic.search.report.points import Point
from mnemic.search.report.times import step_time, timed, untimed
from mnemic.search.space.one_block import by_hand
from mnemic.search.space.space import load_space
from mnemic.search.study import training, work
from mnemic.search.study.scores import device_of, interval
from mnemic.search.study.training import Run


@pytest.fixture
def space(space_file):
    return load_space(str(space_file))


def jobs(space):
    spec = by_hand(space, "deltanet")
    return list(work.jobs(spec, space.settings, space.settings.rungs[-1], range(1)))


def test_a_run_is_the_same_wherever_it_is_trained(space):
    elsewhere = overridden(space, None, device="cuda:1")
    assert elsewhere.hash == space.hash
    for here, there in zip(jobs(space), jobs(elsewhere), strict=True):
        assert here.key == there.key
        assert there.place == Place("cuda:1", space.settings.limits.memory)
        assert here.place.device == "cpu"


def test_a_run_is_the_same_under_torch_compile(space):
    faster = overridden(space, None, compile=True)
    assert faster.hash == space.hash
    for plain, fast in zip(jobs(space), jobs(faster), strict=True):
        assert plain.key == fast.key
        assert (plain.place.compiled, fast.place.compiled) == (False, True)


def test_the_place_comes_to_the_training(space, tmp_path, monkeypatch):
    bounded, asked = [], []

    class Told(Exception):
        pass

    def train(model, task, options, *_, **__):
        asked.append((options.device, options.compiled))
        raise Told

    monkeypatch.setattr(trainer, "train", train)
    monkeypatch.setattr(training, "bound_memory", bounded.append)
    job = jobs(overridden(space, None, device="cuda", compile=True))[0]
    with pytest.raises(Told):
        training.run(job, tmp_path)
    assert asked == [("cuda", True)]
    assert bounded == [job.place]


@pytest.mark.parametrize(("compiled", "told"), [(None, "cpu"), (True, "cpu, compiled")])
def test_a_time_under_torch_compile_is_told_as_such(space, tmp_path, monkeypatch, compiled, told):
    """So that times of both kinds share no front, as those of two devices."""

    def train(model, task, options, folder, *_, **__):
        (folder / "curve.csv").write_text("step,score\n")
        (folder / trainer.CHECKPOINT).touch()
        return SimpleNamespace(score=0.5, seconds=1.0, steps=2)

    monkeypatch.setattr(trainer, "train", train)
    job = jobs(overridden(space, None, compile=compiled))[0]
    assert training.run(job, tmp_path).device == told


def run(device, seconds=0.01):
    return Run("mqar", 0, 0.5, 0.5, 1.0, seconds, ((1, 0.5),), device=device)


def test_a_time_says_where_it_was_taken():
    cpu, gpu = run("cpu", 0.01), run("NVIDIA H200", 0.002)
    assert step_time([cpu, cpu]) == "10.0"
    assert step_time([gpu, gpu]) == "2.0 (NVIDIA H200)"
    assert step_time([cpu, gpu]) == "–"
    assert device_of([cpu, gpu]) is None


def test_times_of_different_devices_share_no_front(space):
    spec = by_hand(space, "deltanet")

    def point(name, *runs):
        cost = {"state_bytes": 1.0, "flops": 1.0, "step_seconds": runs[0].step_seconds}
        return Point(name, spec, runs, cost)

    cpu = [point(f"cpu-{i}", run("cpu", 0.01 + i)) for i in range(3)]
    gpu, mixed = point("gpu", run("H200", 0.001)), point("mixed", run("H200"), run("cpu"))
    every = [gpu, *cpu, mixed]
    assert timed(every) == cpu
    by_cost = {front.cost: front.points for front in fronts(every)}
    assert by_cost["step_seconds"] == (cpu[0],)
    assert gpu in by_cost["flops"]
    assert "2 points were timed on another device" in page(every, ["x"])
    assert "another device" not in page(cpu, ["x"])
    assert timed([mixed]) == []


def test_a_report_shows_times_of_one_device_alone(monkeypatch):
    """In its picture of skill over time, and its table."""
    shown = {}
    real = figures.front

    def seen(points, objectives):
        shown[objectives[1]] = [point.spec.name for point in points]
        return real(points, objectives)

    def point(name, *runs):
        return SimpleNamespace(
            spec=SimpleNamespace(name=name), runs=runs, start=None, skill=interval([0.5]),
            measured={"mean": 0.5, "state_bytes": 1.0, "flops": 1.0, "step_seconds": 0.01},
        )  # fmt: skip

    monkeypatch.setattr(figures, "front", seen)
    points = [point("a", run("cpu")), point("b", run("cpu")), point("c", run("H200"))]
    assert figures.fronts(points)
    assert shown == {
        "state_bytes": ["a", "b", "c"], "flops": ["a", "b", "c"], "step_seconds": ["a", "b"],
    }  # fmt: skip
    assert untimed(points).startswith("1 points were timed on another device")
    assert untimed(points[:2]) == ""
