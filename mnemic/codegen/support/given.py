"""A call's arguments as rows: heads repeated, windows, steps, angles and channels laid out."""

import math

import torch
from torch import Tensor

from . import kept, layout
from .arguments import fail
from .calls import Call, States
from .documents import Documents


class Given:
    """A batch, or documents packed into one row: where they stand, and the arguments as rows."""

    def __init__(
        self, call: Call, vectors: dict[str, Tensor], state: States,
        documents: Documents | None = None,
    ) -> None:  # fmt: skip
        self.call, self.signature = call, call.signature
        self.vectors, self.state = vectors, state
        self.given = state = kept.own(call.signature, state)
        self.params = call.params
        self.wanted = tuple(s.name for s in self.signature.states)
        q, k = vectors["q"], vectors["k"]
        self.batch, self.tokens, self.q_heads, self.width = q.shape
        if self.signature.complex:
            self.width = vectors["v"].shape[-1]
        self.documents = documents
        self.sequences = self.batch if documents is None else documents.count
        self.groups = self.q_heads // k.shape[-2]
        if self.groups > 1:
            repeated = {
                n: x.repeat_interleave(self.groups, 1) for n, x in state.items() if x.ndim > 1
            }
            self.given = {**state, **repeated}
        self.heads = self.q_heads
        self.like = _real(vectors["v"])
        self.positions = state.get("position")
        self._position: int | None = None
        self._fits_levels()
        self.steps = self.signature.steps * self.signature.inner
        self.tails: States = {}
        rows = self._grouped(vectors)
        rows = self._windowed(rows)
        self.rows = self._folded(self._stepped(self._turned(rows)))
        self.folds = self.width if self.signature.diagonal else 1
        self.memories = self.sequences * self.heads * self.folds

    @property
    def position(self) -> int:
        """Tokens of the documents before these, read off the device where a form must know."""
        if self._position is None:
            told = self.positions
            rows = 0 if told is None else told.numel()
            self._position = 0 if told is None or rows == 0 else int(told.reshape(-1)[0])
        return self._position

    def _fits_levels(self) -> None:
        """Refuse more tokens than 2^(L − 1), which a tree of L levels holds."""
        count = self.signature.levels
        if not count:
            return
        most = self.position + self.tokens
        held = self.signature.at_most(most)
        if most > held:
            room = f"{count} levels hold {held} tokens of a document"
            hint = f"write readout: {{max_levels: {(most - 1).bit_length() + 1}}} in the spec"
            raise fail(self.signature, f"levels: {room}, read {most}; {hint}")

    # -- arguments as rows ------------------------------------------------------------------

    def _grouped(self, vectors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Repeat keys' heads for grouped queries."""
        if self.groups == 1:
            return dict(vectors)
        axis = {name: self._head_axis(name) for name in vectors}
        return {
            name: x if name == "q" else x.repeat_interleave(self.groups, axis[name])
            for name, x in vectors.items()
        }

    def _head_axis(self, name: str) -> int:
        return 3 if self.signature.steps > 1 and self._micro(name) else 2

    def _micro(self, name: str) -> bool:
        if name in ("k", "v", *self.signature.keys):
            return True
        return any(c.name == name and c.micro for c in self.signature.coefficients)

    def _windowed(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Put the window's tail before keys, values and token weights."""
        width = self.signature.window
        if width == 1:
            return rows
        live = torch.ones_like(rows["k"][..., 0])
        rows["live"] = live
        named = ["k", "v", *self.signature.keys, "live"]
        named += ["gamma"] if self.signature.token_weights else []
        carried = {s.name for s in self.signature.states}
        for name in named:
            x = rows[name]
            tail = self._tail(name, x, width - 1).transpose(1, 2)
            if self.documents is None:
                rows[name] = torch.cat([tail.to(x), x], 1)
                last = rows[name][:, self.tokens :]
            else:
                rows[name] = self.documents.behind(x, tail)
                last = self.documents.last(rows[name], width - 1)
            if f"{name}_tail" in carried:
                self.tails[f"{name}_tail"] = last.transpose(1, 2)
        return rows

    def _tail(self, name: str, x: Tensor, count: int) -> Tensor:
        """Return the last tokens' x, [B, H, c − 1, …]: of kept keys, or carried for a window."""
        found = self.given.get("K" if name == "k" and self.signature.keeps_keys else f"{name}_tail")
        if found is None:
            return x.new_zeros(self.sequences, self.heads, count, *x.shape[3:])
        found = found[:, :, max(0, found.shape[2] - count) :]
        missing = count - found.shape[2]  # a document that is shorter than the window
        return torch.nn.functional.pad(found, (*[0, 0] * (found.ndim - 3), missing, 0))

    def _stepped(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Lay out several steps a token as rows; a decay acts before the first."""
        self._indices(rows)
        if self.steps == 1:
            return rows
        micro, inner = self.signature.steps, self.signature.inner
        found = {}
        for name, x in rows.items():
            if x.ndim < 3:
                found[name] = x
            elif name in self.signature.once:
                fill = 0.0 if name.startswith("log_") else 1.0
                found[name] = layout.spread(x, self.steps, fill)
            elif micro > 1 and self._micro(name):
                found[name] = x.flatten(1, 2).repeat_interleave(inner, 1)
            else:
                found[name] = x.repeat_interleave(self.steps, 1)
        found["first_index"] = layout.spread(torch.ones_like(rows["t_index"]), self.steps, 0.0)
        return found

    def _indices(self, rows: dict[str, Tensor]) -> None:
        like = self.like
        shape = (self.batch, self.tokens, self.heads)
        heads = torch.arange(self.heads, dtype=like.dtype, device=like.device)
        heads = heads.div(self.groups, rounding_mode="floor")  # the head of k, not of q
        rows["h_index"] = heads.expand(shape)
        rows["t_index"] = self._time().to(like.dtype)[..., None].expand(shape)
        rows["zero"] = torch.zeros((), dtype=like.dtype, device=like.device).expand(shape)
        rows["H_index"] = rows["zero"] + self.heads // self.groups

    def _time(self) -> Tensor:
        """Return the position of each token in its document, [1 or B, T]."""
        if self.documents is None:
            time = torch.arange(self.tokens, device=self.like.device)[None]
            return time if self.positions is None else time + self.positions.reshape(-1, 1)
        time = self.documents.time
        if self.positions is not None:
            time = time + self.positions.reshape(-1)[self.documents.number]
        return time[None]

    def _turned(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Replace phases by the cumulative angle of a complex decay, where the rule has one."""
        if not self.signature.phase:
            return rows
        phase = rows.pop("phase")
        if phase.ndim == 3:  # one angle a head
            phase = phase[..., None].expand(*phase.shape, rows["q"].shape[-1])
        carried = self.given.get("angle", phase.new_zeros(self.sequences, *phase.shape[2:]))
        angle, self.tails["angle"] = self._angles(phase, carried)
        if self.signature.complex:
            self.angle = angle
            return self._paired(rows)
        rows["angle"] = angle
        for coefficient in self.signature.coefficients:
            # both halves of a turned key share their channel's value
            if coefficient.axes == "K" and coefficient.parameter in rows:
                rows[coefficient.parameter] = torch.cat([rows[coefficient.parameter]] * 2, -1)
        return rows

    def _paired(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Lay out complex numbers as two real channels, in a frame that turns with their phases.

        Of x_t = α_t e^{iω_t} x_{t−1} + b_t the memory A_t = e^{−iΩ_t} x_t, Ω_t the sum of the ω,
        is A_t = α_t A_{t−1} + e^{−iΩ_t} b_t: its parts never meet.
        """
        found = dict(rows)
        doubled = [c.parameter for c in self.signature.coefficients if c.axes == "k"]
        for name in ("q", "k", *self.signature.keys, *doubled):
            if name in found:
                found[name] = torch.cat([found[name]] * 2, -1)
        found["v"] = turned(rows["v"], -self.angle)
        return found

    def _angles(self, phase: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
        """Return the angles at each token and at the end, from 0 to 2π."""
        if self.documents is not None:
            turns, last = self.documents.sums(phase.double(), carried.double())
        else:
            whole = torch.cat([carried[:, None], phase], 1).double()  # long sums lose digits
            whole = whole.cumsum(1)
            last, turns = whole[:, -1], whole[:, 1:]
        found = [torch.remainder(x, 2 * math.pi).to(phase.dtype) for x in (turns, last)]
        return found[0], found[1]

    def _folded(self, rows: dict[str, Tensor]) -> dict[str, Tensor]:
        """Lay out a diagonal memory's channels as heads of size one."""
        if not self.signature.diagonal:
            return rows
        vectors = ("q", "k", "v", "angle", *self.signature.keys)
        found = {}
        for name, x in rows.items():
            if x.ndim < 3:
                found[name] = x
                continue
            channelled = x.ndim > 3 and (name != "gamma" or self.signature.window == 1)
            folded = layout.fold_channels(x, self.width, channelled)
            found[name] = folded[..., None] if name in vectors else folded
        return found


def turned(x: Tensor, angle: Tensor) -> Tensor:
    """Compute e^{i·angle} x of complex numbers by parts: [B, T, (n,) H, 2d] by [B, T, H, d]."""
    if x.ndim > angle.ndim:
        angle = angle[:, :, None]
    real, imaginary = x.chunk(2, -1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat([real * cos - imaginary * sin, real * sin + imaginary * cos], -1)


def _real(x: Tensor) -> Tensor:
    """Return x or, in place of one of 16 bits, a tensor of float32: what states are like."""
    short = x.dtype in (torch.float16, torch.bfloat16)
    return torch.empty(x.shape, dtype=torch.float32, device=x.device) if short else x
