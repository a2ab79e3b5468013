"""What `check` says of compiling, against compiling itself."""

from __future__ import annotations

from typing import Any

import pytest

from mnemic import pipeline
from mnemic.codegen.refused import refused
from mnemic.errors import InvalidSpec

RATE = {"rate": "token"}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {"bias": "l2"},
    "a tree beside two steps": {"readout": {"levels": "token"}, "optimizer": {"inner_steps": 2}},
    "a bonus beside a window": {"readout": {"bonus": "learned"}, "window": 3, "bias": "l2"},
    "a window of two steps": {"bias": "l2", "window": 3, "optimizer": {"inner_steps": 2}},
    "a moving window": {"bias": "l2", "window": 3, "features": "cosine"},
    "read before two steps": {"bias": "l2", "readout": {"memory": "before"},
                              "optimizer": {"inner_steps": 2}},
    "intervals that do not nest": {"memory": {"kind": "mlp"}, "bias": "l2",
                                   "optimizer": {**RATE, "method": "muon", "every": 4,
                                                 "anchor": {"chunk": 6}}},
    "a decay by channel of layers": {"memory": {"kind": "mlp"}, "bias": "l2",
                                     "retention": {"decay": "channel"}, "optimizer": RATE},
    "a start out of reach": {"bias": "l2", "optimizer": {
        "rate": {"from": "parameter", "activation": "sigmoid", "init": 2}}},
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_what_compiling_refuses_is_known_without_it(name: str) -> None:
    spec = pipeline.read({"name": "mine", **SPECS[name]})
    told = refused(pipeline.derive(spec))
    try:
        pipeline.files(spec)
    except InvalidSpec as refusal:
        assert [i.message for i in told] == [i.message for i in refusal.issues]
        assert [f"mine {i.where}".strip() for i in told] == [i.where for i in refusal.issues]
    else:
        assert not told
