"""Recall of a chunk's pairs at its end, chunk after chunk: memories that learn once and no more."""

import pytest
import torch
from packaged import having

import mnemic
from mnemic.bench import recall, started

NORMED = [name for name in having("normed") if name in having("hybrid none")]
"""Memories behind a norm; hybrids have those of other specs."""
ONE = {"mnemic": 1, "name": "one", "bias": "l2"}


def test_packaged_memories_with_a_norm_are_looked_at() -> None:
    assert {"ttt-linear", "ttt-mlp", "titans", "memora", "moneta-derived", "cms"} <= {*NORMED}


@pytest.mark.some(3)
@pytest.mark.parametrize("name", NORMED)
def test_a_normed_memory_goes_on_learning(name: str) -> None:
    """Behind a norm one step that is too long leaves a memory that nothing moves."""
    found = recall.run(mnemic.compile(name), chunks=6, seeds=1)
    assert found.cosines[0] > 0.1
    assert found.share > recall.KEPT


def test_a_norm_at_zero_learns_in_the_first_chunk_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start that a layer no longer has: W_0 = 0, where the norm's slope is 316."""
    given = started.arguments

    def at_zero(*args: object, **options: object) -> object:
        found, params = given(*args, **options)  # type: ignore[arg-type]
        return found, {name: torch.zeros_like(x) for name, x in params.items()}

    monkeypatch.setattr(recall, "arguments", at_zero)
    found = recall.run(mnemic.compile("ttt-linear"), chunks=6, seeds=2)
    assert found.cosines[0] > 0.5
    assert abs(found.share) < recall.KEPT


def test_recall_is_that_of_the_rule_by_hand() -> None:
    """With a rate of one the delta rule knows its last pair exactly, so pairs alone are exact."""
    spec = {**ONE, "optimizer": {"rate": 1}}
    found = recall.run(mnemic.compile(spec), chunks=5, seeds=1)
    assert found.tokens == 16
    assert len(found.cosines) == 5
    memory = torch.zeros(32, 32, dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    torch.randn(1, 80, 32, generator=rng, dtype=torch.float64)  # the layer's input
    keys, values = (torch.randn(80, 32, generator=rng, dtype=torch.float64) for _ in range(2))
    for start in range(0, 80, 16):
        k = torch.nn.functional.normalize(keys[start : start + 16], dim=-1)
        v = values[start : start + 16]
        for key, value in zip(k, v, strict=True):
            memory += torch.outer(value - memory @ key, key)
        cosine = torch.nn.functional.cosine_similarity(k @ memory.mT, v, dim=-1).mean()
        assert found.cosines[start // 16] == pytest.approx(float(cosine))


def test_anchors_and_steps_set_the_chunk() -> None:
    lact = recall.run(mnemic.compile("lact"), chunks=2, seeds=1)
    assert lact.tokens == 64
    assert recall.run(mnemic.compile("deltaproduct"), chunks=2, seeds=1).cosines[0] > 0.5
