"""Requests at once get what each would get alone, in one process and over HTTP."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from small_models import small, tokens

from mnemic.hf import batching
from mnemic.hf.batching import Batcher, Request
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.serve import Server
from mnemic.hf.tokenizer import get_tokenizer

LENGTHS = (3, 9, 5, 1)


def alone(model: MnemicForCausalLM, prompt: list[int], count: int) -> list[int]:
    """The likeliest tokens, by ``generate()``."""
    found = model.generate(
        torch.tensor([prompt]), max_new_tokens=count, do_sample=False, eos_token_id=None
    )
    return found[0, len(prompt) :].tolist()


@pytest.fixture
def batchers() -> Iterator[Any]:
    """Makes batchers that end with the test."""
    made: list[Batcher] = []

    def make(model: MnemicForCausalLM, rows: int = 16) -> Batcher:
        made.append(Batcher(model, rows))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_requests_at_once_get_what_they_get_alone(
    each: str, batchers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more of them than rows, of several lengths, and prompts that are read in pieces."""
    monkeypatch.setattr(batching, "PIECE", 4)
    model = small(each, blocks=1)
    prompts = [tokens(1, length, seed=length)[0].tolist() for length in LENGTHS]
    batcher = batchers(model, 3)
    limits = (6, 3, 5, 4)
    requests = [batcher.submit(Request(p, limit)) for p, limit in zip(prompts, limits, strict=True)]
    found = [list(request.tokens()) for request in requests]
    assert found == [alone(model, p, limit) for p, limit in zip(prompts, limits, strict=True)]


def test_states_that_do_not_grow_share_one_batch(
    batchers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    move = Batcher._move

    def counted(self: Batcher, batch: Any, given: torch.Tensor) -> None:
        seen.append(len(batch.requests))
        move(self, batch, given)

    monkeypatch.setattr(Batcher, "_move", counted)
    batcher = batchers(small("gated-deltanet"))
    requests = [batcher.submit(Request([seed + 1], 12)) for seed in range(4)]
    for request in requests:
        assert len(list(request.tokens())) == 12
    assert max(seen) == 4


def test_samples_follow_from_their_own_seed(batchers: Any) -> None:
    model = small("gated-deltanet")
    first = list(batchers(model).submit(Request([1, 2], 12, 1.0, seed=5)).tokens())
    batcher = batchers(model)
    others = [batcher.submit(Request([3], 12, 1.0, seed=seed)) for seed in range(3)]
    again = list(batcher.submit(Request([1, 2], 12, 1.0, seed=5)).tokens())
    assert again == first
    assert len({tuple(other.tokens()) for other in others}) == 3


def test_the_smallest_share_takes_the_likeliest_token(batchers: Any) -> None:
    model = small("gated-deltanet")
    found = batchers(model).submit(Request([1, 2], 8, 1.0, top_p=1e-6)).tokens()
    assert list(found) == alone(model, [1, 2], 8)


def test_who_stops_reading_leaves_a_row(batchers: Any) -> None:
    batcher = batchers(small("gated-deltanet"), 1)
    reader = batcher.submit(Request([1], 1_000_000)).tokens()
    next(reader)
    reader.close()
    assert len(list(batcher.submit(Request([2], 3)).tokens())) == 3


def test_an_error_of_the_model_is_told_and_the_next_request_goes_on(
    batchers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small("gated-deltanet")
    batcher = batchers(model)
    with monkeypatch.context() as broken:
        broken.setattr(batcher, "_logits", lambda *_: 1 / 0)
        with pytest.raises(RuntimeError, match="division by zero"):
            list(batcher.submit(Request([1], 3)).tokens())
    assert list(batcher.submit(Request([1], 3)).tokens()) == alone(model, [1], 3)


def test_a_closed_batcher_ends_what_it_has() -> None:
    batcher = Batcher(small("gated-deltanet"))
    request = batcher.submit(Request([1], 1_000_000))
    reader = request.tokens()
    next(reader)
    batcher.close()
    assert len(list(reader)) < 1_000_000
    with pytest.raises(RuntimeError, match="closed"):
        batcher.submit(Request([1], 3))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    batcher = Batcher(small("gated-deltanet", vocabulary=257))
    server = Server(("127.0.0.1", 0), "tiny", batcher, get_tokenizer("bytes", ()))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()
    batcher.close()


def post(address: str, **told: Any) -> Any:
    """The answer's text."""
    body = json.dumps(told).encode()
    with urllib.request.urlopen(f"{address}/completions", body, timeout=60) as answer:
        return answer.read().decode()


def test_the_model_is_listed(address: str) -> None:
    with urllib.request.urlopen(f"{address}/models", timeout=60) as answer:
        assert json.load(answer)["data"][0]["id"] == "tiny"


def test_two_clients_at_once_get_what_each_gets_alone(address: str) -> None:
    told = [
        {"prompt": "def f(x):", "max_tokens": 20, "temperature": 0},
        {"prompt": "import", "max_tokens": 25, "seed": 3},
    ]

    def asked(one: dict[str, Any]) -> Any:
        answer = json.loads(post(address, **one))
        return answer["choices"], answer["usage"]

    expected = [asked(one) for one in told]
    with ThreadPoolExecutor(2) as clients:
        assert list(clients.map(asked, told * 3)) == expected * 3
    assert expected[0][0][0]["finish_reason"] == "length"
    assert expected[0][1] == {"prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29}


def test_a_stream_gives_the_same_text_in_pieces(address: str) -> None:
    told = {"prompt": "class A", "max_tokens": 30, "temperature": 0}
    whole = json.loads(post(address, **told))["choices"][0]
    lines = post(address, **told, stream=True).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-2]]
    assert "".join(event["text"] for event in events) == whole["text"]
    assert [e["finish_reason"] for e in events] == [None] * (len(events) - 1) + ["length"]


def test_a_stop_ends_the_text_before_it(address: str) -> None:
    told = {"prompt": "class A", "max_tokens": 30, "temperature": 0}
    whole = json.loads(post(address, **told))["choices"][0]["text"]
    stop = whole[8:11]
    answer = json.loads(post(address, **told, stop=[stop, "never"]))["choices"][0]
    assert answer["text"] == whole[: whole.index(stop)]
    assert answer["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"prompt": ""}, "prompt: it is empty"),
        ({"prompt": [1, 257]}, "prompt: read neither"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens: read 0"),
        ({"prompt": "a", "temperature": "hot"}, "temperature: read 'hot'"),
        ({"prompt": "a", "max_token": 3}, "did you mean 'max_tokens'"),
        ({"prompt": "a", "n": 2}, "n: read 2: it is not served"),
        ({"prompt": "a", "stop": [1]}, "stop: read"),
    ],
)
def test_what_cannot_be_served_is_told(told: dict[str, Any], message: str, address: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        post(address, **told)
    assert refusal.value.code == 400
    assert message in json.load(refusal.value)["error"]["message"]
