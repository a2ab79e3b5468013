"""States stand in memory of their own: a token that moves one on in place changes nothing else."""

import pytest
import torch

import mnemic

STARTED = ["titans", "titans-mac", "ttt-linear", "dla", "lact", "cms"]
"""Memories that start from parameters, and whose anchors do."""

OWN = {
    "low-rank": {"memory": "low-rank", "optimizer": {"rate": 0.1}},
    "anchored": {"bias": "l2", "optimizer": {"rate": "token", "anchor": {"chunk": 4}}},
    "every": {
        "bias": "l2",
        "optimizer": {"method": "muon", "rate": 0.01, "momentum": "token", "every": 4,
                      "anchor": {"chunk": 4}},
    },
}  # fmt: skip


@pytest.fixture(params=[*STARTED, *OWN])
def layer(request) -> torch.nn.Module:
    name = request.param
    spec = {"mnemic": 1, "name": name, **OWN[name]} if name in OWN else name
    torch.manual_seed(0)
    return mnemic.compile(spec).layer(8, heads=2).double()


@pytest.mark.parametrize("first", [0, 3, 4, 16])
@pytest.mark.parametrize("batch", [1, 2])
@torch.no_grad()
def test_tokens_in_place_are_those_of_the_sequence(layer, batch: int, first: int) -> None:
    x = torch.randn(batch, first + 5, 8, dtype=torch.float64)
    before = [p.clone() for p in layer.parameters()]
    whole = layer(x)
    _, state = layer(x[:, :first], output_state=True)
    for token in range(first, first + 5):
        torch.testing.assert_close(layer.advance(x[:, token], state), whole[:, token])
    assert all(map(torch.equal, layer.parameters(), before))


@torch.no_grad()
def test_a_state_that_is_kept_stays_as_it_is(layer) -> None:
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    _, kept = layer(x[:, :4], output_state=True)
    copies = {name: s.clone() for name, s in kept.items()}
    _, branch = layer.step(x[:, 4], kept)
    layer.advance(x[:, 5], branch)
    _, same = layer(x[:, :0], state=kept, output_state=True)
    layer.advance(x[:, 5], same)
    for name, s in kept.items():
        assert torch.equal(s, copies[name]), name


@torch.no_grad()
def test_a_rule_gives_states_of_their_own() -> None:
    compiled = mnemic.compile("ttt-linear")
    layer = compiled.layer(8, heads=2)
    arguments, params = layer.arguments(torch.randn(1, 16, 8)), layer.params()
    _, state = compiled(**arguments, params=params, output_final_state=True)
    begun = compiled.operator.begin(**{n: x[:, :1] for n, x in arguments.items()}, params=params)
    for states in (state, begun):
        places = [x.data_ptr() for x in (*states.values(), *params.values())]
        assert len(set(places)) == len(places)


@pytest.mark.filterwarnings("ignore")  # torch's own, of its own code
@torch.no_grad()
def test_a_graph_gives_states_of_their_own() -> None:
    layer = mnemic.compile("ttt-linear").layer(8, heads=2)
    run = torch.compile(lambda x: layer(x, output_state=True), backend="aot_eager")
    _, state = run(torch.randn(1, 3, 8))
    places = [x.data_ptr() for x in (*state.values(), *layer.parameters())]
    assert len(set(places)) == len(places)


@torch.no_grad()
def test_a_state_keeps_no_sequence_alive() -> None:
    """The convolution's last tokens are a part of all of them, and would hold these."""
    layer = mnemic.compile("gated-deltanet").layer(8, heads=2)
    _, state = layer(torch.randn(1, 500, 8), output_state=True)
    held = {name: x.untyped_storage().nbytes() for name, x in state.items()}
    assert held == {name: x.numel() * x.element_size() for name, x in state.items()}


@torch.no_grad()
def test_a_state_that_shares_its_memory_is_not_written_to() -> None:
    layer, x = mnemic.compile("dla").layer(8, heads=2), torch.randn(1, 8)
    _, state = layer(x[:, None], output_state=True)
    with pytest.raises(ValueError, match=r"state\['anchor1'\]: shares memory with state\['W1'\]"):
        layer.advance(x, {**state, "anchor1": state["W1"]})
    with pytest.raises(ValueError, match=r"memory with the layer's 'W1'; .* \.clone\(\)"):
        layer.advance(x, {**state, "W1": layer.start["W1"]})
