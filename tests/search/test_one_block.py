"""One block for every memory, budgets, learning rates, and who is told apart from the best."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec, UsageError
from mnemic.search.report import leaderboard as board
from mnemic.search.report.standings import table
from mnemic.search.report.ties import first_group
from mnemic.search.space.one_block import by_hand, in_block, with_block
from mnemic.search.space.space import load_space
from mnemic.search.study import work
from mnemic.search.study.isolated import Answer, Failure
from mnemic.search.study.sweep import sweep
from mnemic.search.study.training import Run

BLOCK = "mnemic: 1\nname: shared\nblock: {heads: 2, convolution: 3, output_norm: rms}\n"
SPACE: dict[str, Any] = {
    "mnemic": 1,
    "name": "board",
    "search": {
        "tasks": {"memorisation": "tiny"},
        "model": {"dim": 8, "layers": 1},
        "training": {"batch": 4, "eval_size": 16, "warmup": 2},
        "rungs": [{"steps": 8, "seeds": 3}],
    },
}


@pytest.fixture
def shared(tmp_path):
    path = tmp_path / "shared.yaml"
    path.write_text(BLOCK)
    return str(path)


def test_every_spec_has_the_same_block_and_its_own_rule(shared):
    space = with_block(load_space(SPACE), shared)
    specs = [by_hand(space, name) for name in ("softmax-attention", "griffin", "titans-mac")]
    blocks = {spec.block.model_copy(update={"scale": None}) for spec in specs}
    assert len(blocks) == 1
    assert blocks == {load(shared).block}
    assert [spec.memory for spec in specs[1:]] == [
        load(name).memory for name in ("griffin", "titans-mac")
    ]


def test_the_temperature_is_a_rules_own_unless_the_block_writes_it(shared):
    hot = load("attention-unnormalised")
    assert in_block(hot, load(shared).block, 64).block.scale == hot.block.scale == 8
    written = load({"name": "b", "block": {"scale": 2}}).block
    assert in_block(hot, written, 64).block.scale == 2


@pytest.mark.parametrize("name", ["softmax-attention", "swa", "path", "gated-softmax"])
def test_unit_vectors_leave_a_similarity_its_spread(name, shared):
    """Else weights are all the same: within exp(±1/√d), whatever keys and queries say."""
    block = load({"name": "b", "block": {"heads": 4}}).block
    found = in_block(load(name), block, 64)
    assert found.memory == load(name).memory.model_copy(update={"scale": 4.0})
    torch.manual_seed(0)
    q, k = torch.randn(2, 10000, 16, dtype=torch.float64)
    before = (q * k).sum(-1) / 4
    after = found.memory.scale * (F.normalize(q, dim=-1) * F.normalize(k, dim=-1)).sum(-1)
    assert after.std() == pytest.approx(float(before.std()), rel=0.05)
    wide = in_block(load(name), load({"name": "b", "block": {"key_dim": 9}}).block, 64)
    assert wide.memory.scale == 3.0
    by_value = load({"name": "b", "block": {"value_dim": 16}}).block
    assert in_block(load(name), by_value, 64).memory.scale == 4.0, "four heads of 16 channels"


def test_a_similarity_of_distances_has_no_scale():
    block = load({"name": "b", "block": {}}).block
    near = load("gaussian-attention")
    assert in_block(near, block, 64).memory == near.memory


def test_vectors_that_the_block_leaves_alone_keep_their_scale():
    block = load({"name": "b", "block": {"qk_norm": "none"}}).block
    assert in_block(load("softmax-attention"), block, 64).memory.scale is None
    unit = load({"mnemic": 1, "extends": "softmax-attention", "name": "u", "memory": {"scale": 2}})
    assert in_block(unit, load({"name": "b", "block": {}}).block, 64).memory.scale == 2


def test_a_base_does_not_show_through(shared):
    space = load_space({**SPACE, "extends": "titans-mac"})
    point = with_block(space, shared).point(lambda name, choice: pytest.fail(name))
    assert point.spec.block == load(shared).block
    assert point.spec.bias == load("titans-mac").bias


def test_a_space_that_chooses_in_its_block_has_no_other(shared, tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "mnemic: 1\nname: s\nblock: {heads: {choose: [1, 2]}}\nsearch: {tasks: {mqar: tiny}}\n"
    )
    with pytest.raises(InvalidSpec, match=r"space.yaml:3:8: block: the space chooses here, and"):
        with_block(load_space(path), shared)


@pytest.mark.parametrize(
    ("entry", "name", "refused"),
    [
        ({"value": "1"}, "gated-deltanet", "block.value"),
        ({"value": "1"}, "lru", None),
        ({"activation": "2", "key": "silu"}, "gated-deltanet", "block.value"),
        ({"key": "1"}, "softmax-attention", "block.key"),
        ({"key": "1"}, "lru", None),
        ({"attention_window": 4}, "deltanet", "block.attention_window"),
        ({"value": "silu"}, "gated-deltanet", None),
    ],
)
def test_a_block_that_gives_a_rule_nothing_to_write_is_refused(entry, name, refused):
    block = load({"name": "b", "block": {}}).block.model_copy(update=entry)
    if refused is None:
        assert in_block(load(name), block, 64).bias == load(name).bias
        return
    with pytest.raises(InvalidSpec) as error:
        in_block(load(name), block, 64)
    assert error.value.issues[0].where == f"{name} {refused}"


def test_a_search_in_such_a_block_is_refused_before_anything_is_trained(tmp_path):
    from mnemic.search.study.search import open_search

    space = load_space({**SPACE, "bias": {"choose": ["dot", "l2"]}, "block": {"value": "1"}})
    with pytest.raises(InvalidSpec, match=r"none of 100 sampled points.*the same value"):
        open_search(space, tmp_path / "run", tell=lambda line: None)
    assert not (tmp_path / "run").exists()


class Counted:
    """In place of processes: looks cost what is told, runs score by learning rate and seed."""

    def __init__(self, parameters: int = 1) -> None:
        self.parameters, self.jobs, self.looks, self.highest = parameters, list[Any](), 0, 0.5

    def __call__(self, function, *arguments, bounds, log, stopping=None):
        if function is board.work.look:
            self.looks += 1
            return Answer(board.Look("x", "affine", self.parameters, 1, 1.0, None))
        job = arguments[0]
        self.jobs.append(job)
        lr = job.budget.training.lr
        if lr > self.highest:
            return Answer(Failure("not finite", "the loss is nan"))
        skill = 1 - lr + 0.001 * job.seed
        return Answer(Run(job.task, job.seed, skill, skill, 1.0, 0.1, (), job.key))


@pytest.fixture
def counted(monkeypatch):
    found = Counted()
    monkeypatch.setattr(board, "isolated", found)
    monkeypatch.setattr(board, "bounds", lambda settings, log: {"parameters": 10.0})
    return found


def measured(space, folder, names=("deltanet", "gla"), **options):
    return board.leaderboard(space, names, folder, lambda line: None, **options)


def test_a_budget_that_no_spec_meets_is_told_before_anything_is_trained(counted, tmp_path):
    counted.parameters = 30
    with pytest.raises(UsageError, match=r"parameters at most 10: deltanet has parameters 3.0x"):
        measured(load_space(SPACE), tmp_path / "run")
    assert counted.jobs == []
    assert counted.looks == 2
    counted.parameters = 5
    wider = {**SPACE["search"], "constraints": {"parameters": 40}}
    assert measured(load_space({**SPACE, "search": wider}), tmp_path / "run")[0].runs


def test_the_rate_is_chosen_on_a_seed_that_the_ranking_does_not_use(counted, tmp_path):
    data = {**SPACE, "search": {**SPACE["search"], "rates": [0.9, 0.1, 0.3, 0.2]}}
    (entry,) = measured(load_space(data), tmp_path / "run", ("deltanet",))
    assert entry.rate == 0.1
    assert [(heat.rate, heat.steps) for heat in entry.heats] == [
        (0.1, 2), (0.2, 2), (0.3, 2), (0.9, 2), (0.1, 4), (0.2, 4),
    ]  # fmt: skip
    ranked = [(job.budget.training.lr, job.budget.steps, job.seed) for job in counted.jobs[-3:]]
    assert ranked == [(0.1, 8, seed) for seed in range(3)]
    assert {job.seed for job in counted.jobs[:-3]}.isdisjoint(range(3))
    assert board.read_measured(load_space(data), ["deltanet"], tmp_path / "run") == [entry]


def test_a_rate_that_failed_is_told_and_tried_again(counted, tmp_path):
    data = {**SPACE, "search": {**SPACE["search"], "rates": [0.9, 0.1]}}
    space, folder = load_space(data), tmp_path / "run"
    found = measured(space, folder)
    told = "A learning rate was left out, since a run with it failed: deltanet, gla; `--again`"
    assert told in table(space, found)
    counted.highest, counted.jobs = 1.0, []
    assert measured(space, folder) == found
    assert counted.jobs == []
    swept = measured(space, folder, again=True)
    assert 0.9 in [job.budget.training.lr for job in counted.jobs]
    assert {heat.rate for heat in swept[0].heats} == {0.1, 0.9}
    assert "was left out" not in table(space, swept)


def test_a_folder_belongs_to_one_block(counted, shared, tmp_path):
    space, folder = load_space(SPACE), tmp_path / "run"
    measured(with_block(space, shared), folder, results=board.IN_ONE_BLOCK)
    measured(space, folder)
    measured(with_block(space, shared), folder, results=board.IN_ONE_BLOCK)
    with pytest.raises(UsageError, match=r"another space, which differs in spec\.block; choose"):
        measured(with_block(space, "deltanet"), folder, results=board.IN_ONE_BLOCK)
    longer = {**SPACE, "search": {**SPACE["search"], "rungs": [{"steps": 9, "seeds": 3}]}}
    with pytest.raises(UsageError, match=r"differs in search\.rungs"):
        board.read_measured(load_space(longer), ["deltanet"], folder)


def test_what_was_refused_is_told_and_the_others_are_measured(counted, tmp_path):
    block = {**SPACE, "block": {"key": "1"}}
    lines: list[str] = []
    found = board.leaderboard(load_space(block), ["deltanet", "lru"], tmp_path / "r", lines.append)
    assert "gives every token the same key" in lines[0], "before anything is trained"
    assert [bool(one.runs) for one in found] == [False, True]
    with pytest.raises(UsageError, match="no spec can be trained; deltanet"):
        measured(load_space(block), tmp_path / "r", ("deltanet", "gla"))


def test_earlier_results_stay_as_they_are():
    """What a release adds to the settings changes no identity where it is not used."""
    identity = load_space(SPACE).settings.identity
    assert set(identity["constraints"]) == {"parameters", "state_bytes", "flops"}
    assert "rates" not in identity


def test_the_table_has_both_columns_and_tells_ties(counted, shared, tmp_path):
    space = load_space(SPACE)
    own = measured(space, tmp_path / "run")
    one = measured(with_block(space, shared), tmp_path / "run", results=board.IN_ONE_BLOCK)
    text = table(with_block(space, shared), one, own)
    assert "|  | spec | mean skill | in its own block | memorisation |" in text
    assert "| 1= | deltanet | 0.998 ± 0.002 | 0.998 ± 0.002 |" in text
    assert "not told apart from the best" in text
    assert "Every spec is in the same block: heads 2," in text


def test_what_is_one_rule_in_one_block_is_said_to_be(counted, shared, tmp_path):
    names = ("titans", "deltanet", "titans-mac")
    one = with_block(load_space(SPACE), shared)
    apart = measured(load_space(SPACE), tmp_path / "own", names)
    alike = measured(one, tmp_path / "one", names, results=board.IN_ONE_BLOCK)
    assert (
        "These are the same rule in this block and were trained once: titans, titans-mac."
        in table(one, alike)
    )
    assert "One rule" not in table(one, apart)


def test_the_first_group_holds_the_best_nineteen_times_in_twenty():
    """Where all are alike, any one of them is the best; it is left out in at most 5 %."""
    chance, missed, draws = random.Random(0), 0, 400
    spread = [0.01, 0.05, 0.2, 0.02, 0.1]
    for _ in range(draws):
        skills = {str(w): [chance.gauss(0.5, w) for _ in range(4)] for w in spread}
        missed += chance.choice(list(skills)) not in first_group(skills)
    assert missed / draws < 0.05


@pytest.mark.parametrize("spread", ["inverse χ²", "the same", "two sizes", "log-normal"])
def test_the_truly_best_of_many_is_seldom_left_out(spread):
    """With variances drawn as the method takes them to be, and otherwise: 5 % of draws at most."""
    chance, missed, draws = np.random.default_rng(0), 0, 150
    sizes = {
        "inverse χ²": lambda n: 0.03 * np.sqrt(2.3 / chance.chisquare(2.3, n)),
        "the same": lambda n: np.full(n, 0.05),
        "two sizes": lambda n: chance.choice([0.005, 0.1], n),
        "log-normal": lambda n: 0.03 * np.exp(chance.normal(0, 1, n)),
    }[spread]
    for _ in range(draws):
        size = sizes(30)
        skills = {str(i): list(chance.normal(0.5, w, 3)) for i, w in enumerate(size)}
        missed += str(chance.integers(30)) not in first_group(skills)
    assert missed / draws < 0.05 + 2 * (0.05 * 0.95 / draws) ** 0.5


def test_what_is_far_below_is_not_in_the_first_group():
    skills = {"a": [0.9, 0.91, 0.92, 0.9], "b": [0.91, 0.9, 0.9, 0.92], "c": [0.1, 0.12, 0.1, 0.11]}
    assert set(first_group(skills)) == {"a", "b"}
    assert first_group({"a": [1.0, 1.0], "b": [0.5, 0.5], "c": [1.0, 1.0]}) == ("a", "c")
    assert first_group({"a": [0.9], "b": [0.1]}) == ("a", "b"), "one seed tells nothing"
    assert first_group({}) == ()


def test_a_single_rate_is_not_tried():
    assert sweep([0.1], 10, lambda rate, steps: pytest.fail("tried")) == (0.1, ())


def test_training_flops_are_three_times_those_of_the_forward_pass():
    """A product's gradient is two products, for either factor; little is done again."""
    model = {"dim": 128, "layers": 1}
    data = {**SPACE["search"], "constraints": {"training_flops": "1x"}, "model": model}
    settings = load_space({**SPACE, "search": data}).settings
    seen = work.look(load("linear-attention"), settings, None)
    assert seen.training_flops == pytest.approx(3 * seen.flops, rel=0.1)
    assert seen.costs["training_flops"] == seen.training_flops
    assert work.look(load("linear-attention"), load_space(SPACE).settings, None).costs.keys() == {
        "parameters", "state_bytes", "flops",
    }  # fmt: skip


def test_attention_costs_products_between_all_pairs():
    """2 T (d_k + d_v) FLOPs a token and head, masked pairs too, and 2.5 as many with gradients."""
    q, k, v = (torch.zeros(2, 3, n, 8, requires_grad=True) for n in (16, 32, 32))
    with work.Products() as forward:
        y = F.scaled_dot_product_attention(q, k, v)
    assert forward.flops == 2 * 2 * 3 * 16 * 32 * (8 + 8)
    with work.Products() as backward:
        y.sum().backward()
    assert backward.flops == 2 * 2 * 3 * 16 * 32 * (3 * 8 + 2 * 8)


def test_flops_of_attention_grow_with_the_text():
    """And costs are those of the longest text that any rung trains on."""

    def seen(name, **told):
        asked = {"tasks": {"mqar": "tiny"}, "rungs": [{"steps": 1}, {"steps": 2, **told}]}
        space = load_space({**SPACE, "search": {**SPACE["search"], **asked}})
        return work.look(load(name), space.settings, None)

    longer = {"sizes": {"mqar": "figure-256"}}
    short, long = (seen("softmax-attention", **told) for told in ({}, longer))
    assert long.state_bytes > 3 * short.state_bytes
    assert long.flops > 1.2 * short.flops
    short, long = (seen("linear-attention", **told) for told in ({}, longer))
    assert long.state_bytes == short.state_bytes


def test_points_to_begin_with_that_contradict_the_block_are_passed_over():
    from mnemic.search.study.budget import LOOKS, _some
    from mnemic.search.study.starts import starts

    search = {**SPACE["search"], "start": ["linear-attention"]}
    memory = {"choose": ["linear", "diagonal"]}
    space = load_space({**SPACE, "search": search, "memory": memory, "block": {"key": "1"}})
    assert [name for name, _ in starts(space)] == ["linear-attention"]
    found = list(_some(space))
    assert len(found) == LOOKS
    assert {spec.memory.kind for spec in found} == {"diagonal"}
