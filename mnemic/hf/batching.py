"""Continuous batching: requests join and leave between tokens, each with its own states.

Requests whose states have the same shape are the rows of one batch, and one call of the model
advances all of them by one token. A finished request leaves its row, and one whose prompt has been
read takes a row; states are not copied otherwise. Rows do not affect each other, so each request
gets the tokens that it would get alone (up to rounding).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mnemic.hf.cache_mnemic import MnemicCache, State
from mnemic.hf.modeling_mnemic import MnemicForCausalLM

PIECE = 256
"""Tokens of a prompt that are read between two tokens of the others."""

LOOK = 0.5
"""Seconds of waiting for a token after which whoever waits looks around."""

COLDEST = 1e-30
"""The temperature below which no other token than the likeliest has a share."""


@dataclass
class Request:
    """A request for a continuation, and its progress.

    Args:
        prompt: the prompt's tokens, at least one.
        limit: the maximum number of new tokens.
        temperature: the sampling temperature; 0 takes the likeliest token.
        top_p: sample among the likeliest tokens whose probabilities sum to this.
        seed: the seed of sampling.
        ends: tokens that end the text; they are not part of it.
    """

    prompt: Sequence[int]
    limit: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    ends: frozenset[int] = frozenset()
    found: queue.Queue[int | BaseException | None] = field(default_factory=queue.Queue)
    cancelled: bool = False
    read: int = 0
    given: int = 0
    last: int = -1

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def tokens(self, meanwhile: Callable[[], None] = lambda: None) -> Iterator[int]:
        """Yield the new tokens as they are generated.

        Args:
            meanwhile: called before each token, and every half second of waiting for one; where it
                raises an error, the request ends.

        Raises:
            RuntimeError: the model failed; its error is the cause.
        """
        try:
            while (token := self._awaited(meanwhile)) is not None:
                if isinstance(token, BaseException):
                    raise RuntimeError(f"the model failed: {token}") from token
                yield token
        finally:
            self.cancelled = True

    def _awaited(self, meanwhile: Callable[[], None]) -> int | BaseException | None:
        while True:
            meanwhile()
            try:
                return self.found.get(timeout=LOOK)
            except queue.Empty:
                continue

    def take(self, logits: Tensor) -> bool:
        """Choose the next token from logits [vocabulary]; return whether the text goes on."""
        self.last = self._chosen(logits.float().cpu())
        if self.last in self.ends:
            return False
        self.given += 1
        self.found.put(self.last)
        return self.given < self.limit

    def _chosen(self, logits: Tensor) -> int:
        if self.temperature == 0:
            return int(logits.argmax())
        above = (logits.double() - logits.max()) / max(self.temperature, COLDEST)
        shares, order = above.softmax(0).float().sort(descending=True)
        shares = shares.where(shares.cumsum(0) - shares < self.top_p, 0.0)
        return int(order[torch.multinomial(shares, 1, generator=self.generator)])


@dataclass
class Batch:
    """Requests in the rows of one cache."""

    requests: list[Request]
    cache: MnemicCache

    @property
    def shapes(self) -> list[dict[str, torch.Size]]:
        """The shapes of the states, without their rows."""
        return [{n: x.shape[1:] for n, x in state.items()} for state in states_of(self.cache)]

    def join(self, other: Batch) -> None:
        """Take the rows of another batch behind this one's own, with their states."""
        self.requests += other.requests
        for layer, own, new in zip(
            self.cache.layers, states_of(self.cache), states_of(other.cache), strict=True
        ):
            layer.state = {name: torch.cat([x, new[name]]) for name, x in own.items()}

    def keep(self, rows: list[int]) -> None:
        """Keep the requests of these rows, and their states, alone."""
        self.requests = [self.requests[i] for i in rows]
        if rows:
            self.cache.batch_select_indices(torch.tensor(rows))


class Batcher:
    """Runs a model for many requests at once, in a thread of its own.

    Args:
        model: in evaluation mode.
        rows: requests that are worked on at once; others wait in order.
    """

    def __init__(self, model: MnemicForCausalLM, rows: int = 16) -> None:
        self.model, self.rows = model, rows
        self.waiting: queue.Queue[Request | None] = queue.Queue()
        self.reading: list[Batch] = []
        self.batches: list[Batch] = []
        self.closed = False
        self.thread = threading.Thread(target=self._run, name="batcher", daemon=True)
        self.thread.start()

    def submit(self, request: Request) -> Request:
        """Take a request; its tokens come from ``request.tokens()``.

        Raises:
            RuntimeError: the batcher is closed.
        """
        if self.closed:
            raise RuntimeError("the batcher is closed")
        self.waiting.put(request)
        return request

    def close(self) -> None:
        """Stop after the current turn; unfinished requests end with the tokens that they have."""
        self.closed = True
        self.waiting.put(None)
        self.thread.join()

    @property
    def live(self) -> int:
        """Requests that are worked on."""
        return len(self.reading) + sum(len(batch.requests) for batch in self.batches)

    def _run(self) -> None:
        while not self.closed:
            self._admit()
            try:
                with torch.inference_mode():
                    self._turn()
            except BaseException as error:  # told to whoever waits; the next requests go on
                self._end(error)
        self._end(None)

    def _admit(self) -> None:
        """Start waiting requests while rows are free; wait for one where there is nothing to do."""
        while self.live < self.rows:
            try:
                request = self.waiting.get(block=not self.live)
            except queue.Empty:
                return
            if request is None:
                return
            if request.cancelled:
                request.found.put(None)
                continue
            cache = MnemicCache(self.model.config.num_hidden_layers)
            self.reading.append(Batch([request], cache))

    def _turn(self) -> None:
        """Read a piece of the oldest prompt, and generate each running request's next token."""
        self._drop()
        if self.reading:
            self._read(self.reading[0])
        for batch in self.batches:
            last = torch.tensor([[request.last] for request in batch.requests])
            self._move(batch, last)
        self.batches = [batch for batch in self.batches if batch.requests]

    def _drop(self) -> None:
        """End prompts that are being read, and for whose text nobody waits any more."""
        for batch in [batch for batch in self.reading if batch.requests[0].cancelled]:
            self.reading.remove(batch)
            batch.requests[0].found.put(None)

    def _read(self, batch: Batch) -> None:
        request = batch.requests[0]
        end = len(request.prompt) if request.read + PIECE >= len(request.prompt) else 0
        piece = request.prompt[request.read : end or request.read + PIECE]
        request.read += len(piece)
        if not end:
            self._logits(batch, torch.tensor([list(piece)]))
            return
        self._move(batch, torch.tensor([list(piece)]))
        self.reading.remove(batch)
        if not batch.requests:
            return
        fitting = (one for one in self.batches if one.shapes == batch.shapes)
        if (found := next(fitting, None)) is None:
            self.batches.append(batch)
        else:
            found.join(batch)

    def _move(self, batch: Batch, tokens: Tensor) -> None:
        """Generate each row's next token; remove rows that are done or that nobody reads."""
        logits = self._logits(batch, tokens)
        going = [
            i
            for i, request in enumerate(batch.requests)
            if not request.cancelled and self._goes_on(request, logits[i])
        ]
        for i in sorted(set(range(len(batch.requests))) - set(going)):
            batch.requests[i].found.put(None)
        if len(going) < len(batch.requests):
            batch.keep(going)

    def _goes_on(self, request: Request, logits: Tensor) -> bool:
        """Give a request its next token; tell an error in choosing it to this request alone."""
        try:
            return request.take(logits)
        except Exception as error:
            request.found.put(error)
            return False

    def _logits(self, batch: Batch, tokens: Tensor) -> Tensor:
        device = self.model.device
        called = self.model(tokens.to(device), cache=batch.cache, logits_to_keep=1)
        logits: Tensor = called.logits[:, -1]
        return logits

    def _end(self, told: BaseException | None) -> None:
        """End the running requests and, if the batcher is closed, the waiting ones too."""
        for batch in (*self.reading, *self.batches):
            for request in batch.requests:
                request.found.put(told)
        self.reading, self.batches = [], []
        while self.closed and not self.waiting.empty():
            if (late := self.waiting.get()) is not None:
                late.found.put(told)


def states_of(cache: MnemicCache) -> list[State]:
    """Return the states of a cache's layers."""
    return [layer.state or {} for layer in cache.layers]
