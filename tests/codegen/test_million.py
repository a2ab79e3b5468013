"""A text of a million tokens through a layer in pieces: what one pass gives, and its state."""

import pytest
import torch

import mnemic

PIECES = 16
"""Of one text; they end at no chunk's end."""
NAMES = ("gated-deltanet", "titans-linear")


@torch.no_grad()
def in_pieces_as_whole(name: str, length: int) -> None:
    """Run a layer over a text at once and piece by piece, and compare."""
    torch.manual_seed(0)
    layer = mnemic.compile(name).layer(dim=8, heads=1).eval()
    x = torch.randn(1, length, 8)
    whole, end = layer(x, output_state=True)
    state, found = None, []
    for piece in x.split(length // PIECES + 3, dim=1):
        out, state = layer(piece, state=state, output_state=True)
        found.append(out)
    assert whole.isfinite().all()
    torch.testing.assert_close(torch.cat(found, 1), whole, atol=1e-4, rtol=1e-4)
    assert state is not None
    assert state.keys() == end.keys()
    for part, value in end.items():
        torch.testing.assert_close(state[part], value, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_long_text_in_pieces(name: str) -> None:
    in_pieces_as_whole(name, 16_007)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_a_million_tokens_in_pieces(name: str) -> None:
    in_pieces_as_whole(name, 1_000_000)
