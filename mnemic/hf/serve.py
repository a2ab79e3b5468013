"""A server of text completions with OpenAI's interface, on the standard library's HTTP."""

from __future__ import annotations

import json
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mnemic.errors import Issue, UsageError, format_issue
from mnemic.hf.batching import Batcher, Request
from mnemic.hf.completion import UnknownModel, get_number, read_completion
from mnemic.hf.decoding import Decoder

LARGEST, DRAINED = 4 << 20, 64 << 20
"""Bytes of a request's body, and of one that is thrown away so that its client reads why."""

Piece = tuple[str, str | None]
"""Some text, and at the end why it ended."""


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
        self.begin = _begin(tokenizer, batcher.model.config.bos_token_id)
        self.answering: set[threading.Thread] = set()
        super().__init__(place, Handler)

    def end(self, patience: float = 2.0) -> None:
        """End the batcher, and wait, for at most so many seconds, until open requests have been
        answered."""
        self.batcher.close()
        late = time.monotonic() + patience
        for thread in list(self.answering):
            thread.join(max(0.0, late - time.monotonic()))

    def request(self, told: dict[str, Any]) -> Request:
        """Return the request that a completion's options, read from its body, ask for.

        Raises:
            UsageError: an option that is unknown or out of range; it names it.
        """
        if told["model"] not in (None, self.name):
            issue = Issue("", "model", str(told["model"]), (self.name,))
            raise UnknownModel(format_issue(issue))
        tokens = self._tokens(told["prompt"])
        end = self.tokenizer.eos_token_id
        return Request(
            tokens,
            get_number(told, "max_tokens", 1, 1 << 20, whole=True),
            get_number(told, "temperature", 0, 10),
            get_number(told, "top_p", 1e-6, 1),
            secrets.randbits(31) if told["seed"] is None else get_number(
                told, "seed", -(1 << 63), (1 << 63) - 1, whole=True
            ),
            frozenset() if end is None else frozenset([end]),
        )  # fmt: skip

    def _tokens(self, prompt: Any) -> list[int]:
        """Return a prompt's tokens: at least one, and all within the model's vocabulary."""
        if isinstance(prompt, str):
            try:
                prompt.encode()
            except UnicodeEncodeError as error:
                half = f"{prompt[error.start]!a} is half a character"
                raise UsageError(f"prompt: no text: {half}") from None
            prompt = self.begin + self.tokenizer.encode(prompt, add_special_tokens=False)
        if not isinstance(prompt, list) or not all(type(x) is int for x in prompt):
            raise UsageError("prompt: read neither text nor a list of tokens")
        if not prompt:
            raise UsageError("prompt: it is empty; at least one token is needed")
        size = self.batcher.model.config.vocab_size
        for token in prompt:
            if not 0 <= token < size:
                raise UsageError(f"prompt: token {token}: allowed are 0 to {size - 1}")
        return prompt

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error of a client that has left; report others as socketserver does."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def pieces(
        self, request: Request, stops: list[str], meanwhile: Callable[[], None]
    ) -> Iterator[Piece]:
        """Yield the new text at each token, and at the end the reason for it: ``stop`` or
        ``length``.

        Text that may be the beginning of a stop, or of a character, is held back until it is clear.
        ``meanwhile`` is called as `Request.tokens` does.

        Raises:
            RuntimeError: the model failed, or the server ends.
        """
        decoder = Decoder(self.tokenizer, request.prompt)
        text = ""
        for token in self.batcher.submit(request).tokens(meanwhile):
            text += decoder.add(token)
            if (end := _stopped(text, stops)) is not None:
                yield text[:end], "stop"
                return
            safe = len(text) - max((_held(text, stop) for stop in stops), default=0)
            yield text[:safe], None
            text = text[safe:]
        whole = request.given >= request.limit
        if not whole and request.last not in request.ends:
            raise RuntimeError("the server ends; the text is not whole")
        text += decoder.rest()
        end = _stopped(text, stops)
        yield text[:end], "length" if whole and end is None else "stop"


def _begin(tokenizer: Any, known: int | None) -> list[int]:
    """Return the token before a prompt, if the model knows one and its tokenizer puts it there.

    A model that was trained here knows none: its documents have no token before them.
    """
    first = tokenizer.encode("")[:1]
    return first if first == [known] else []


def _stopped(text: str, stops: list[str]) -> int | None:
    """Return the position of the first stop in a text; None where there is none."""
    return min((text.index(stop) for stop in stops if stop in text), default=None)


def _held(text: str, stop: str) -> int:
    """Count the characters at the end of a text that may be the beginning of a stop."""
    return max((n for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)


class Handler(BaseHTTPRequestHandler):
    """The handler of one client's requests."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request for the list of models; any other is an error, 404."""
        if self._place() != "/v1/models":
            self._refuse(404, self._unserved())
            return
        model = {"id": self.server.name, "object": "model", "owned_by": "mnemic"}
        self._answer(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Complete a text, streamed or whole, or answer with an error: 400, 404, 413, 500."""
        body = self._body()
        if body is None:
            self._refuse(413, f"a body of at most {LARGEST} bytes with its length is needed")
            return
        if self._place() != "/v1/completions":
            self._refuse(404, self._unserved())
            return
        try:
            told = read_completion(body)
            request = self.server.request(told)
        except UsageError as error:
            self._refuse(404 if isinstance(error, UnknownModel) else 400, str(error))
            return
        self.server.answering.add(threading.current_thread())
        try:
            with self._heard() as look:
                pieces = self.server.pieces(request, told["stop"], look)
                self._stream(pieces) if told["stream"] else self._whole(pieces, request)
        except ConnectionError:
            self.close_connection = True
        finally:
            request.cancelled = True
            self.close_connection |= self.server.batcher.closed
            self.server.answering.discard(threading.current_thread())

    def _place(self) -> str:
        return self.path.partition("?")[0].rstrip("/")

    def _unserved(self) -> str:
        return f"no {self.command} {self.path}; served: GET /v1/models, POST /v1/completions"

    def _body(self) -> bytes | None:
        """Read the request's body; None for one without a length, or too long."""
        told = self.headers.get("Content-Length", "")
        length = int(told) if told.isdecimal() else DRAINED + 1
        if length <= LARGEST:
            return self.rfile.read(length)
        self.close_connection = True
        if length <= DRAINED:
            for start in range(0, length, LARGEST):
                self.rfile.read(min(LARGEST, length - start))
        return None

    @contextmanager
    def _heard(self) -> Iterator[Callable[[], None]]:
        """Yield a look at the connection, which raises ConnectionError when the client has left."""
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.connection, selectors.EVENT_READ)

            def look() -> None:
                if waiting.select(0) and not self.connection.recv(1, socket.MSG_PEEK):
                    raise ConnectionAbortedError

            yield look

    def _whole(self, pieces: Iterator[Piece], request: Request) -> None:
        try:
            found = list(pieces)
        except RuntimeError as error:
            self._refuse(500, str(error))
            return
        whole = _choice("".join(text for text, _ in found), found[-1][1])
        usage = {
            "prompt_tokens": len(request.prompt), "completion_tokens": request.given,
            "total_tokens": len(request.prompt) + request.given,
        }  # fmt: skip
        self._answer(200, {**_named(self.server.name), **whole, "usage": usage})

    def _stream(self, pieces: Iterator[Piece]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        named = _named(self.server.name)
        try:
            for text, reason in pieces:
                if text or reason:
                    self._event(json.dumps({**named, **_choice(text, reason)}))
        except RuntimeError as error:  # a status has been sent; the client is told in its place
            self._event(json.dumps(_error(500, str(error))))
            return
        self._event("[DONE]")

    def _event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def _refuse(self, status: int, message: str) -> None:
        self._answer(status, _error(status, message))

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:  # fmt: skip
        """Answer requests that http.server refuses (other methods, say) in our format of errors."""
        self.close_connection = True
        self._refuse(code, message or self.responses[HTTPStatus(code)][0])

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal belongs to the command."""


def _named(model: str) -> dict[str, Any]:
    """Return the fields that an answer and every piece of a stream have in common."""
    return {
        "id": f"cmpl-{secrets.token_hex(8)}", "object": "text_completion",
        "created": int(time.time()), "model": model,
    }  # fmt: skip


def _choice(text: str, reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
    return {"choices": [choice]}


def _error(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "code": status}}
