"""The live table of a search: what it says, and that a search in a terminal shows it."""

import io

import pytest
from rich.console import Console
from terminal import on_terminal

from mnemic.cli.search_progress import drawn
from mnemic.search.report.progress import Standing
from mnemic.search.study.scores import interval

FIRST = Standing(2, 10, 1, {"finished": 2}, ())
NOW = Standing(6, 10, 2, {"finished": 4, "stopped": 2}, (("gla", interval([0.5, 0.6])),))

SPACE = """\
mnemic: 1
name: tiny-space
bias: {choose: [dot, l2]}
block: {heads: 1, feed_forward: none, convolution: 0}
search:
  tasks: {memorisation: tiny}
  constraints: none
  model: {dim: 8, layers: 1}
  training: {batch: 4, eval_size: 16, warmup: 2}
  rungs: [{steps: 2}]
  trials: 2
  start: []
"""


def text(first: Standing, now: Standing, seconds: float) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(drawn("mine", first, now, seconds, ["trial 5 finished"]))
    return out.getvalue()


def test_the_table_tells_the_rate_and_the_time_left():
    """Four trials in ten minutes are 24 an hour; the four that are left take ten more."""
    told = text(FIRST, NOW, 600.0)
    assert "mine: 6 of 10 trials" in told
    assert "10 min so far, 2 running, 24 trials an hour, 10 min left" in told
    assert "finished 4, stopped 2" in told
    assert "1. gla: 0.550 ± 0.635" in told
    assert "trial 5 finished" in told


def test_there_is_no_rate_before_the_first_trial():
    assert "no rate yet" in text(FIRST, FIRST, 600.0)
    over = Standing(12, 10, 0, {}, ())
    assert "0 s left" in text(FIRST, over, 60.0)


@pytest.mark.full
def test_a_search_in_a_terminal_shows_the_table(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(SPACE)
    shown, status = on_terminal(100, "search", str(path), "--run", str(tmp_path / "run"))
    assert status == 0
    assert "tiny-space: 2 of 2 trials" in shown
    assert "best" in shown
    assert "mnemic: trial" not in shown, "the table holds the lines"
