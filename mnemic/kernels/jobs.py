"""The jobs of a table: a spec's passes at one head size, dtype and target.

``compile_folder`` runs in a process of its own (``worker``), on a compiled folder.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mnemic.codegen.support.seeded import seeded
from mnemic.codegen.support.versions import ALONE
from mnemic.kernels.counting import counted, size
from mnemic.kernels.limits import target
from mnemic.kernels.offline import Kernel, compiling
from mnemic.kernels.tracing import tracing

PASSES = ("forward", "backward", "decode", "step")
"""``decode`` is the rule's token, ``step`` the whole layer's, where it has a kernel of its own."""
NO_FORM = "no fused form"
"""What is told of a rule without kernels: that is no fault."""
SEQUENCES = PASSES[:2]
"""The passes of whole sequences."""
BATCH, TOKENS, HEADS = 1, 256, 16
"""Multiples of 16, as in use: kernels differ where a size is known to be one."""

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Job:
    """One spec's kernels: the compiled folder, the target, d_k = d_v, the dtype.

    ``source`` is the digest of what they are made from. With ``stalls`` the kernels of whole
    sequences are simulated, too, and only those are compiled.
    """

    spec: str
    family: str
    folder: str
    target: str
    width: int = 64
    dtype: str = "bfloat16"
    source: str = ""
    stalls: bool = False


def compile_folder(job: Mapping[str, Any]) -> dict[str, Any]:
    """Compile each pass of a folder; return its kernels, its bytes, or why there are none.

    Returns ``{"passes": {name: {"kernels": [...], "bytes": {...}, "error": str or None,
    "refused": str or None}}}``, and ``"missing"`` for a rule without the form. Where a kernel
    refuses these sizes nothing runs in its place: PyTorch's form could take many minutes.
    """
    from triton.errors import TritonError

    from mnemic.codegen.package import load

    asked = Job(**job)
    module = load(Path(asked.folder))
    if "triton" not in module.rule.forms:
        return {"missing": NO_FORM, "passes": {}}
    subject = Subject.of(module, asked.width, getattr(torch, asked.dtype))
    found: dict[str, Any] = {}
    before = 0
    refused = _refused(module)
    passes = SEQUENCES if asked.stalls else subject.passes
    with compiling(target(asked.target), stalls=asked.stalls) as log, alone():
        for name in passes:
            at, told, why = len(log.launches), None, None
            read, written = (), ()
            try:
                read, written = getattr(subject, name)()
            except refused as error:
                why = str(error)
            except (RuntimeError, TritonError) as error:
                told = _first(error)
            kernels = log.since(at) if asked.stalls else log.kernels[before:]
            before = len(log.kernels)
            moved = counted(log.launches[at:], read, written)
            found[name] = {
                "kernels": [_row(kernel) for kernel in kernels],
                "bytes": asdict(moved), "error": told, "refused": why,
            }  # fmt: skip
    return {"missing": None, "passes": found}


def count_folder(job: Mapping[str, Any]) -> dict[str, Any]:
    """Count the bytes and matrix products of each pass of a compiled folder, for each token and
    head.

    It runs where Triton interprets, in float16, whose bytes are bfloat16's. Returns
    ``{"passes": {name: {"moved", "floor", "products", "error", "refused"}}}``, and ``"missing"``.
    """
    from triton.errors import TritonError

    from mnemic.codegen.package import load

    asked = Job(**job)
    module = load(Path(asked.folder))
    if "triton" not in module.rule.forms:
        return {"missing": NO_FORM, "passes": {}}
    subject = Subject.of(module, asked.width, torch.float16, heads=1)
    tokens = subject.arguments["q"].shape[1]
    found: dict[str, Any] = {}
    refused = _refused(module)
    read: tuple[Tensor, ...]
    written: tuple[Tensor, ...]
    for name in subject.passes:
        told, why, read, written = None, None, (), ()
        with tracing() as traced, alone():
            try:
                read, written = getattr(subject, name)()
            except refused as error:
                why = str(error)
            except (RuntimeError, TritonError) as error:
                told = _first(error)
        each = BATCH * (1 if name in ("decode", "step") else tokens)
        floor = sum(size(x) for x in (*read, *written))
        found[name] = {"moved": traced.moved / each, "floor": floor / each,
                       "products": traced.products / each, "error": told,
                       "refused": why}  # fmt: skip
    return {"missing": None, "passes": found}


@contextmanager
def alone() -> Iterator[None]:
    """Make kernels raise, in this context, for arguments that they refuse, with no fallback to
    PyTorch."""
    before = os.environ.get(ALONE)
    os.environ[ALONE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ALONE]
        else:
            os.environ[ALONE] = before


def _refused(module: Any) -> type[Exception]:
    """Return what a compiled folder raises for refused arguments, of its own support code."""
    from mnemic.codegen.package import support

    found: type[Exception] = support(module, "versions").Refused
    return found


def _first(error: BaseException) -> str:
    """Return an error as one line: its first cause, and for Triton's errors the kernel's source
    line."""
    told = _last(error)
    while error.__cause__ is not None:
        error = error.__cause__
    cause = f"{type(error).__name__}: {_last(error)}"
    return cause if cause.endswith(told) else f"{cause} (at {told})"


def _last(error: BaseException) -> str:
    """Return the last line of a message: Triton shows the source first, and the reason last."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip(" ^")]
    return lines[-1] if lines else ""


def _row(kernel: Kernel) -> dict[str, Any]:
    told = {**asdict(kernel), "target": kernel.target.name}
    if kernel.cycles is not None:
        told["cycles"]["of_rows"] = kernel.cycles.of_rows
    return {**told, "troubles": list(kernel.troubles), "blocks": kernel.blocks}


@dataclass
class Subject:
    """A compiled rule, the arguments that its layer gives it, and that layer."""

    rule: Any
    arguments: Tensors
    params: Tensors
    state: Tensors
    memory: Any
    """The layer that holds the rule, in the job's dtype."""
    x: Tensor
    support: Any
    """The support module of steps."""

    @property
    def passes(self) -> tuple[str, ...]:
        """The passes that there are: a layer whose token has no kernel of its own says why."""
        return PASSES if self.memory.step_kernel is not None else PASSES[:-1]

    @classmethod
    def of(cls, module: Any, width: int, dtype: torch.dtype, heads: int = HEADS) -> "Subject":
        """Make a layer as it starts, and its arguments; what it keeps in float32 stays so.

        Heads of attention beside it have two channels, which rotary positions turn.
        """
        from mnemic.codegen.package import support

        layer_type = module.Layer
        groups = layer_type.grouped()
        dim = max(16, 2 * heads) * groups
        with seeded(0):
            value = layer_type.rule.signature.values(width, width)
            layer = layer_type(dim, heads=heads * groups, key_dim=width, value_dim=value)
            x = torch.randn(BATCH, layer.at_most(max(TOKENS, 2 * layer.period)), dim)
        with torch.no_grad():
            found = {n: a.contiguous() for n, a in layer.arguments(x).items()}
        vectors = {"q", "k", "v", *module.rule.signature.keys}
        found = {n: a.to(dtype) if n in vectors else a for n, a in found.items()}
        params = {n: p.detach() for n, p in layer.params().items()}
        memory = getattr(layer, "memory", layer).to(dtype)
        return cls(module.rule, found, params, {}, memory, x.to(dtype), support(module, "step"))

    def _call(self, arguments: Tensors, params: Tensors, state: Tensors) -> tuple[Tensor, Tensors]:
        options: dict[str, Any] = {"params": params} if params else {}
        out, final = self.rule(
            **arguments, **options, form="triton", initial_state=state, output_final_state=True
        )
        return out, {n: s for n, s in final.items() if s.is_floating_point()}

    def forward(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Run without gradients; return what is read, and what is written."""
        with torch.no_grad():
            out, final = self._call(self.arguments, self.params, {})
        read = (*self.arguments.values(), *self.params.values())
        return read, (out, *final.values())

    def backward(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Run a pass with its gradients; return what is read, and what is written."""
        leaves = {n: x.clone().requires_grad_() for n, x in self.arguments.items()}
        begun = {n: x.clone().requires_grad_() for n, x in self.params.items()}
        out, final = self._call(leaves, begun, {})
        ends = [x for x in (out, *final.values()) if x.requires_grad]
        if not ends:
            raise RuntimeError("no gradient reaches the arguments")
        sources = [*leaves.values(), *begun.values()]
        given = [torch.ones_like(x) for x in ends]
        found = torch.autograd.grad(ends, sources, given, allow_unused=True)
        return (*sources, *given), (out, *(g for g in found if g is not None))

    def decode(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Run one token from the state before a first one; return what is read, what is written."""
        one = {n: x[:, :1].contiguous() for n, x in self.arguments.items()}
        begun = self.rule.begin(**one, params=self.params)
        with torch.no_grad():
            out, final = self._call(one, self.params, begun)
        floats = [s for s in begun.values() if s.is_floating_point()]
        return (*one.values(), *floats), (out, *final.values())

    def step(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Run a layer's token, projections aside; return what it reads and writes, if it fits."""
        before, now = self.x[:, :-1][:, :2], self.x[:, -1:]
        with torch.no_grad():
            _, state = self.memory.rows(before, {}, None, "recurrent")
            kernel = self.support.chosen(self.memory, now, state, "triton")
            if kernel is None:
                return (), ()
            launch = self.support.Launch.of(self.memory, kernel, now, state)
            out, after = launch.result(in_place=False)
        return tuple(launch.given), (out, *after.values())
