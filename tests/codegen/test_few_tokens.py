"""Which form ``auto`` takes for a few tokens, and that states are carried from one to the other."""

from __future__ import annotations

import pytest
import torch

import mnemic


@pytest.mark.parametrize("name", ["deltanet", "titans"])
@pytest.mark.parametrize(
    ("tokens", "form"), [(1, "recurrent"), (3, "recurrent"), (4, "chunk"), (15, "chunk")]
)
def test_the_form_of_a_few_tokens(name: str, tokens: int, form: str) -> None:
    torch.manual_seed(0)
    layer = mnemic.compile(name).layer(32).double()
    x = torch.randn(2, tokens + 3, 32, dtype=torch.float64)
    _, state = layer(x[:, :3], output_state=True)
    other = "chunk" if form == "recurrent" else "recurrent"
    found, same, too = (
        layer(x[:, 3:], state=state, output_state=True, form=each) for each in ("auto", form, other)
    )
    assert torch.equal(found[0], same[0])
    assert not torch.equal(found[0], too[0]) or tokens == 1
    torch.testing.assert_close(found[0], too[0], rtol=0, atol=1e-12)
    for key, told in too[1].items():
        torch.testing.assert_close(found[1][key], told, rtol=0, atol=1e-12)
