"""A server of text completions with OpenAI's interface, on the standard library's HTTP."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mnemic.errors import Issue, UsageError, format_issue, nearest
from mnemic.hf.batching import Batcher, Request

TAKEN = {
    "prompt": "", "max_tokens": 16, "temperature": 1.0, "top_p": 1.0, "seed": None, "stop": None,
    "stream": False, "model": None,
}  # fmt: skip
"""What a completion takes, and what stands for it where it is left out."""

IGNORED = ("n", "user", "echo", "logprobs", "best_of", "stream_options")
"""Of OpenAI's options those that may be told at the value that changes nothing."""

LARGEST = 4 << 20
"""Bytes of a request's body."""


class Server(ThreadingHTTPServer):
    """Serves one model: ``GET /v1/models``, ``POST /v1/completions``, streamed or whole.

    Args:
        place: host and port; port 0 takes a free one.
        name: of the model.
        batcher: runs it.
        tokenizer: of transformers.
    """

    daemon_threads = True

    def __init__(self, place: tuple[str, int], name: str, batcher: Batcher, tokenizer: Any) -> None:
        self.name, self.batcher, self.tokenizer = name, batcher, tokenizer
        super().__init__(place, Handler)

    def request(self, told: dict[str, Any]) -> Request:
        """Return the request that a completion's options, read from its body, ask for.

        Raises:
            UsageError: an option that is unknown or out of range; it names it.
        """
        prompt = told["prompt"]
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        size = self.batcher.model.config.vocab_size
        if not isinstance(tokens, list) or not all(
            type(x) is int and 0 <= x < size for x in tokens
        ):
            raise UsageError("prompt: read neither text nor a list of tokens")
        if not tokens:
            raise UsageError("prompt: it is empty; at least one token is needed")
        end = self.tokenizer.eos_token_id
        return Request(
            tokens,
            _number(told, "max_tokens", 1, 1 << 20, whole=True),
            _number(told, "temperature", 0, 10),
            _number(told, "top_p", 1e-6, 1),
            secrets.randbits(31) if told["seed"] is None else _number(
                told, "seed", -(1 << 63), (1 << 63) - 1, whole=True
            ),
            frozenset() if end is None else frozenset([end]),
        )  # fmt: skip

    def pieces(self, request: Request, stops: list[str]) -> Iterator[tuple[str, str | None]]:
        """Give the text as it grows, and at the end why it ended: ``stop`` or ``length``.

        What might be the beginning of a stop, or of a character, is held back until it is known.
        """
        tokens: list[int] = []
        told = 0
        for token in self.batcher.submit(request).tokens():
            tokens.append(token)
            text = self.tokenizer.decode(tokens)
            if at := [text.index(stop) for stop in stops if stop in text]:
                yield text[told : min(at)], "stop"
                return
            held = max((_held(text, stop) for stop in stops), default=0)
            safe = len(text.rstrip("�")) - held
            if safe > told:
                yield text[told:safe], None
                told = safe
        text = self.tokenizer.decode(tokens)
        yield text[told:], "length" if request.given >= request.limit else "stop"


def _held(text: str, stop: str) -> int:
    """Count the letters at the end of a text with which a stop begins."""
    return max((n for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


def _number(
    told: dict[str, Any], name: str, low: float, high: float, *, whole: bool = False
) -> Any:
    read = told[name]
    kinds = (int,) if whole else (int, float)
    if type(read) not in kinds or not low <= read <= high:
        raise UsageError(f"{name}: read {read!r}, must lie between {low:g} and {high:g}")
    return read


def completion(body: bytes) -> dict[str, Any]:
    """Return the options of a completion.

    Raises:
        UsageError: no JSON object, or an option that is not served.
    """
    try:
        told = json.loads(body)
    except ValueError as error:
        raise UsageError(f"the body is no JSON: {error}") from None
    if not isinstance(told, dict):
        raise UsageError("the body: a JSON object is needed")
    for name in set(told) - set(TAKEN):
        if name not in IGNORED:
            issue = Issue("the body", name, name, tuple(TAKEN), nearest(name, TAKEN))
            raise UsageError(format_issue(issue))
        if told[name] not in (None, False, 1, "", {}) and name != "user":
            raise UsageError(f"{name}: read {told[name]!r}: it is not served")
    stop = told.get("stop")
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(x, str) and x for x in stops):
        raise UsageError(f"stop: read {stop!r}, a text or a list of texts is needed")
    given = {name: x for name, x in told.items() if name in TAKEN and x is not None}
    return {**TAKEN, **given, "stop": stops}


class Handler(BaseHTTPRequestHandler):
    """One client's call."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request for the list of models; any other is an error, 404."""
        if self.path.rstrip("/") != "/v1/models":
            self._refuse(404, f"no {self.path}; served: /v1/models, /v1/completions")
            return
        model = {"id": self.server.name, "object": "model", "owned_by": "mnemic"}
        self._answer(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Complete a text, streamed or whole, or answer with an error: 400, 404, 413, 500."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LARGEST:
            self.close_connection = True
            self._refuse(413, f"a body of at most {LARGEST} bytes with its length is needed")
            return
        body = self.rfile.read(int(length))
        if self.path.rstrip("/") != "/v1/completions":
            self._refuse(404, f"no {self.path}; served: /v1/models, /v1/completions")
            return
        try:
            told = completion(body)
            request = self.server.request(told)
        except UsageError as error:
            self._refuse(400, str(error))
            return
        pieces = self.server.pieces(request, told["stop"])
        try:
            self._stream(pieces) if told["stream"] else self._whole(pieces, request)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        except RuntimeError as error:
            self._refuse(500, str(error))
        finally:
            request.cancelled = True

    def _whole(self, pieces: Iterator[tuple[str, str | None]], request: Request) -> None:
        found = list(pieces)
        whole = self._choice("".join(text for text, _ in found), found[-1][1])
        usage = {
            "prompt_tokens": len(request.prompt), "completion_tokens": request.given,
            "total_tokens": len(request.prompt) + request.given,
        }  # fmt: skip
        self._answer(200, {**whole, "usage": usage})

    def _stream(self, pieces: Iterator[tuple[str, str | None]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for text, reason in pieces:
            self._event(json.dumps(self._choice(text, reason)))
        self._event("[DONE]")

    def _event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def _choice(self, text: str, reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
        return {
            "id": f"cmpl-{secrets.token_hex(8)}", "object": "text_completion",
            "created": int(time.time()), "model": self.server.name, "choices": [choice],
        }  # fmt: skip

    def _refuse(self, status: int, message: str) -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        self._answer(status, {"error": {"message": message, "type": kind, "code": status}})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the command."""
