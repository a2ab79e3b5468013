"""Requests at once get what each would get alone, in one process and over HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from small_models import small, tokens
from tokenizers.processors import TemplateProcessing

from mnemic.hf import batching
from mnemic.hf.batching import Batcher, Request
from mnemic.hf.completion import NEUTRAL, read_completion
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.hf.serve import LARGEST, Server
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


@pytest.mark.parametrize("temperature", [5e-324, 1e-39, 1e-5])
def test_a_temperature_near_zero_takes_the_likeliest_token(
    temperature: float, batchers: Any
) -> None:
    model = small("gated-deltanet")
    batcher = batchers(model)
    other = batcher.submit(Request([3], 200)).tokens()
    next(other)
    found = batcher.submit(Request([1, 2], 8, temperature)).tokens()
    assert list(found) == alone(model, [1, 2], 8)
    assert len(list(other)) == 199


def test_an_error_in_choosing_a_token_ends_its_own_request_alone(
    batchers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Request._chosen

    def broken(self: Request, logits: torch.Tensor) -> int:
        return 1 // 0 if self.given == 2 and self.seed == 7 else chosen(self, logits)

    monkeypatch.setattr(Request, "_chosen", broken)
    batcher = batchers(small("gated-deltanet"))
    good, bad = (batcher.submit(Request([1], 20, seed=seed)).tokens() for seed in (6, 7))
    with pytest.raises(RuntimeError, match="division"):
        list(bad)
    assert len(list(good)) == 20


def test_a_prompt_that_nobody_waits_for_is_not_read(
    batchers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its rest, where it has begun, nor any of it where it waits for a row."""
    monkeypatch.setattr(batching, "PIECE", 1)
    batcher = batchers(small("gated-deltanet"), 1)
    logits = batcher._logits

    def slow(*given: Any) -> torch.Tensor:
        time.sleep(0.01)
        return logits(*given)

    monkeypatch.setattr(batcher, "_logits", slow)
    long, waiting = (batcher.submit(Request([1] * 100_000, 3)) for _ in range(2))
    until(lambda: long.read > 2)
    long.cancelled = waiting.cancelled = True
    assert len(list(batcher.submit(Request([2], 3)).tokens())) == 3
    assert waiting.read == 0


def test_a_closed_batcher_ends_what_it_has() -> None:
    batcher = Batcher(small("gated-deltanet"))
    request = batcher.submit(Request([1], 1_000_000))
    reader = request.tokens()
    next(reader)
    batcher.close()
    assert len(list(reader)) < 1_000_000
    with pytest.raises(RuntimeError, match="closed"):
        batcher.submit(Request([1], 3))


@contextmanager
def serving(ends: bool = True, rows: int = 16) -> Iterator[tuple[Server, str]]:
    """A server of a small model of bytes, whose texts may end by themselves, and its address."""
    batcher = Batcher(small("gated-deltanet", vocabulary=257), rows)
    tokenizer = get_tokenizer("bytes", ())
    if not ends:
        tokenizer.eos_token = None
    server = Server(("127.0.0.1", 0), "tiny", batcher, tokenizer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server, f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()
    server.end()


@pytest.fixture(scope="module")
def served() -> Iterator[Server]:
    with serving() as (server, _):
        yield server


@pytest.fixture
def address(served: Server) -> str:
    return f"http://127.0.0.1:{served.server_port}/v1"


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
        ({"prompt": [1, "a"]}, "prompt: read neither"),
        ({"prompt": [1, 257]}, "prompt: token 257: allowed are 0 to 256"),
        ({"prompt": "a\ud800"}, r"prompt: no text: '\ud800' is half a character"),
        ({"prompt": "a", "max_tokens": 0}, "read 0, a whole number from 1 to 1048576 is needed"),
        ({"prompt": "a", "temperature": "hot"}, "temperature: read 'hot'"),
        ({"prompt": "a", "max_token": 3}, "did you mean 'max_tokens'"),
        ({"prompt": "a", "n": 2}, "n: read 2: this value is not supported"),
        ({"prompt": "a", "echo": True}, "echo: read True: this value is not supported"),
        ({"prompt": "a", "logprobs": 1}, "logprobs: read 1: this value is not supported"),
        (
            {"prompt": "a", "presence_penalty": 0.5},
            "presence_penalty: read 0.5: this value is not supported",
        ),
        ({"prompt": "a", "stream": "no"}, "stream: read 'no', true or false is needed"),
        ({"prompt": "a", "stop": [1]}, "stop: read"),
    ],
)
def test_what_cannot_be_served_is_told(told: dict[str, Any], message: str, address: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refusal:
        post(address, **told)
    assert refusal.value.code == 400
    assert message in json.load(refusal.value)["error"]["message"]


@pytest.mark.parametrize(
    ("template", "known", "before"),
    [("$A <|end|>", None, []), ("\u0120 $A", None, []), ("\u0120 $A <|end|>", 32, [32])],
    ids=["an end", "a beginning", "a beginning that the model knows"],
)
def test_a_prompt_has_no_tokens_that_documents_in_training_lack(
    template: str, known: int | None, before: list[int]
) -> None:
    tokenizer = get_tokenizer("bytes", ())
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=template, special_tokens=[("<|end|>", 256), ("\u0120", 32)]
    )
    model = small("gated-deltanet", vocabulary=257)
    model.config.bos_token_id = known
    batcher = Batcher(model)
    with Server(("127.0.0.1", 0), "tiny", batcher, tokenizer) as server:
        request = server.request(read_completion(b'{"prompt": "abc"}'))
    batcher.close()
    assert request.prompt == [*before, *b"abc"]


def refused(address: str, body: bytes, path: str = "completions", **told: Any) -> tuple[int, str]:
    """The status and the message with which a request is refused."""
    asked = urllib.request.Request(f"{address}/{path}", body, **told)
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(asked, timeout=60)
    return refusal.value.code, json.load(refusal.value)["error"]["message"]


def test_every_refusal_is_an_answer_in_json(address: str) -> None:
    """A model that is not here, a body that cannot be read or is too long, another method."""
    model = refused(address, json.dumps({"prompt": "a", "model": "gpt-4"}).encode())
    assert model == (404, "model: read 'gpt-4', allowed: tiny")
    deep = refused(address, b"[" * 100_000)
    assert deep == (400, "the body: nested too deeply to be read")
    assert refused(address, b" " * (LARGEST + 1))[0] == 413
    assert refused(address, b"{}", method="PUT") == (501, "Unsupported method ('PUT')")
    place = refused(address, b"{}", "chat/completions")
    told = "no POST /v1/chat/completions; served: GET /v1/models, POST /v1/completions"
    assert place == (404, told)


def test_options_at_values_that_change_nothing(address: str) -> None:
    told = {"prompt": "a", "max_tokens": 3, "temperature": 0}
    neutral = {**NEUTRAL, "user": "me", "model": "tiny"}
    first, second = (json.loads(post(address, **told, **more)) for more in ({}, neutral))
    assert first["choices"] == second["choices"]


def test_the_pieces_of_a_stream_have_one_name(address: str) -> None:
    lines = post(address, prompt="a", max_tokens=5, stream=True).split("\n\n")[:-2]
    assert len({json.loads(line.removeprefix("data: "))["id"] for line in lines}) == 1


def called(address: str, **told: Any) -> socket.socket:
    """A connection on which a completion has been asked for."""
    host, port = address.removeprefix("http://").removesuffix("/v1").split(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    body = json.dumps(told).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_row(
    stream: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(ends=False) as (server, address):
        with called(address, prompt="a", max_tokens=1 << 20, stream=stream):
            until(lambda: server.batcher.live == 1)
        until(lambda: server.batcher.live == 0)
    assert capfd.readouterr().err == ""


def test_a_client_that_leaves_before_the_first_token_frees_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While its prompt is read, and while it waits for a row."""
    monkeypatch.setattr(batching, "PIECE", 1)
    with serving(rows=1) as (server, address):
        logits = server.batcher._logits

        def slow(*given: Any) -> torch.Tensor:
            time.sleep(0.01)
            return logits(*given)

        monkeypatch.setattr(server.batcher, "_logits", slow)
        told = {"prompt": "a" * 100_000, "max_tokens": 3}
        with called(address, **told):
            until(lambda: server.batcher.live == 1)
            with called(address, **told):
                until(lambda: len(server.answering) == 2)
            until(lambda: len(server.answering) == 1)
        until(lambda: server.batcher.live == 0)


def until(true: Callable[[], bool]) -> None:
    """Wait for something to happen, a minute at most."""
    late = time.monotonic() + 60
    while not true():
        assert time.monotonic() < late
        time.sleep(0.01)


def test_a_failure_in_a_stream_is_told_in_it(
    served: Server, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.batcher, "_logits", lambda *_: 1 / 0)
    lines = post(address, prompt="a", max_tokens=5, stream=True).split("\n\n")
    message = json.loads(lines[0].removeprefix("data: "))["error"]["message"]
    assert (message, lines[1:]) == ("the model failed: division by zero", [""])


def test_a_server_that_ends_says_that_a_text_is_not_whole() -> None:
    with serving(ends=False) as (server, address), ExitStack() as clients:
        connections = [
            clients.enter_context(called(address, prompt="a", max_tokens=1 << 20, stream=stream))
            for stream in (False, True)
        ]
        until(lambda: server.batcher.live == 2)
        server.end()
        for connection in connections:
            with connection.makefile() as answer:
                told = answer.read()
            assert "the server ends; the text is not whole" in told
            assert "[DONE]" not in told
