"""What the conformance tests share: compiled specs, valid inputs, runs with every gradient."""

import atexit
import importlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from packaged import NAMES as NAMES
from packaged import available as available
from packaged import chunked as chunked
from packaged import every_form as every_form
from packaged import having as having
from packaged import rule_of
from packaged import taking as taking
from tiers import runs_first
from torch import Tensor

from mnemic import pipeline
from mnemic.codegen import cache as disk
from mnemic.codegen import module
from mnemic.codegen.package import load as load_folder
from mnemic.codegen.package import support_files
from mnemic.codegen.support.sizes import eval_size
from mnemic.compiler.derive import derive_spec
from mnemic.compiler.oracle.interpret import interpret
from mnemic.compiler.rule import Layers, LeastSquares, Moments, Rule
from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec, Issue

PACKAGE = "mnemic_conformance"

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """A compiled spec."""

    rule: Rule
    source: str

    @cached_property
    def generated(self) -> Any:
        """The generated operator."""
        return _imported(self.source).rule

    @cached_property
    def operator(self) -> Any:
        """The generated operator, which starts a deep memory at ``beginning`` unless told."""
        return Started(self)

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms that the rule has in PyTorch."""
        forms: tuple[str, ...] = self.signature.forms
        return forms

    @property
    def signature(self) -> Any:
        """What the operator takes and carries."""
        return self.generated.signature

    @property
    def period(self) -> int:
        """Tokens between two anchors: chunks of one rule are not free to choose."""
        return int(self.signature.anchor)


@dataclass(frozen=True)
class Started:
    """An operator called with the initial duals of its deep memory, where it has one."""

    case: Case

    def __getattr__(self, name: str) -> Any:
        return getattr(self.case.generated, name)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        if self.case.signature.params and "params" not in options:
            options["params"] = beginning(self.case, k, v)
        return self.case.generated(q, k, v, **options)


def beginning(case: Case, k: Tensor, v: Tensor) -> Tensors:
    """Initial duals of a deep memory, the same for every head; empty for any other."""
    generator = torch.Generator().manual_seed(5)
    features = eval_size(case.signature.features, k.shape[-1])
    sizes = {"v": v.shape[-1], "D": features, "one": 1, "m2": 5, "m3": 6, "m4": 4, "m6": 5}
    found = {}
    for p in case.signature.params:
        shape = (sizes[p.rows], sizes[p.columns])
        x = torch.randn(*shape, generator=generator, dtype=torch.float64) / shape[1] ** 0.5
        found[p.name] = x.to(k).expand(k.shape[-2], *shape).clone()
    return found


@cache
def _package() -> Path:
    """An empty package with the support files beside it, gone when the session ends."""
    root = Path(tempfile.mkdtemp(prefix="conformance."))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    for name, text in support_files().items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    package = ModuleType(PACKAGE)
    package.__path__ = [str(root)]
    sys.modules[PACKAGE] = package
    return root


def _imported(source: str) -> Any:
    name = "m" + sha256(source.encode()).hexdigest()[:16]
    (_package() / f"{name}.py").write_text(source, encoding="utf-8")
    importlib.invalidate_caches()
    return importlib.import_module(f"{PACKAGE}.{name}")


def generated(rule: Rule, *, kernels: bool = True) -> str:
    """The source of a rule's module."""
    names = {"version": "0", "spec_hash": "0", "text": ""}
    return module.source(rule, **names, numbers={}, fused=kernels).module


def compiled(spec: str | Mapping[str, Any], *, kernels: bool | None = None) -> Case:
    """Return the compiled spec of a name or a mapping, from the cache on disk that all processes
    share. Of a mapping no kernels are generated where ``kernels`` is false; unless told, they are
    in the full tier: the module has the same forms in PyTorch, in half the time.

    Raises ``InvalidSpec`` as ``mnemic.compile`` does.
    """
    kernels = not runs_first() if kernels is None else kernels
    return _compiled(spec if isinstance(spec, str) else json.dumps(spec), kernels)


@cache
def _compiled(text: str, kernels: bool) -> Case:
    rule = derive_spec(load(json.loads(text))) if text.startswith("{") else rule_of(text)
    spec = rule.problem.spec
    if rule.structure.missing is not None:
        raise InvalidSpec((Issue(rule.structure.missing, where=spec.name),))
    if not text.startswith("{"):
        return Case(rule, pipeline.compile(spec).source)
    key = sha256(f"conformance {kernels} {text}".encode()).hexdigest()
    folder = disk.folder(key, lambda: {"module.py": generated(rule, kernels=kernels)})
    return Case(rule, (folder / "module.py").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Fused(Case):
    """A compiled spec with its kernels, in a folder."""

    folder: Path

    @cached_property
    def generated(self) -> Any:
        """The operator of the folder."""
        return load_folder(self.folder).rule


def apart(spec: str | Mapping[str, Any], out: str) -> pipeline.Compiled:
    """Return a compiled spec in a folder of its own, with ``support`` as a package in it."""
    found = pipeline.compile(spec)
    return pipeline.Compiled(found.spec, Path(shutil.copytree(found.folder, out)))


def fused(spec: str | Mapping[str, Any], out: str | None = None) -> Fused:
    """The compiled spec with its kernels: of the cache, or a copy of its own."""
    found = pipeline.compile(spec) if out is None else apart(spec, out)
    rule = rule_of(spec) if isinstance(spec, str) else found.rule
    return Fused(rule, found.source, found.folder)


def argument(case: Case, name: str) -> bool:
    """Whether the operator takes a coefficient of that name."""
    return name in case.operator.coefficients


# -- inputs ----------------------------------------------------------------------------------


def unit(x: Tensor) -> Tensor:
    """Vectors of norm one."""
    size: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / size


@dataclass(frozen=True)
class Sizes:
    """B, T, H, d_k and d_v of random inputs; ``groups`` queries' heads a key's."""

    batch: int = 2
    tokens: int = 29
    heads: int = 2
    key: int = 4
    value: int = 3
    groups: int = 1


def steepest(case: Case) -> float:
    """sup ℓ″ of the loss, a generous guess where it has no bound."""
    bound = case.rule.error.bound
    if case.rule.error.constant:
        return 1.0
    if bound is None or bound.is_infinite:
        return 25.0
    return max(1.0, float(bound)) if bound.is_number else 1.0  # κ or δ keep it in bounds


def widest(case: Case, k: Tensor) -> float:
    """A bound on ‖φ(k)‖² for unit keys."""
    features = case.signature.features
    elementwise = case.rule.problem.features
    if features == "d" and elementwise is not None and elementwise.is_Symbol:
        return 1.0
    return 4.0 * eval_size(features, k.shape[-1]) / k.shape[-1]


def inputs(
    case: Case, tokens: int = 29, *, seed: int = 0, sizes: Sizes | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensors:  # fmt: skip
    """Random arguments that a rule may be given: unit keys, rates inside the stability bound."""
    s = case.signature
    size = sizes or Sizes()
    generator = torch.Generator().manual_seed(seed)
    width = size.key if s.diagonal or s.square else size.value
    width = 2 * size.key if s.complex else width
    step = (s.steps,) if s.steps > 1 else ()
    lead = (size.batch, tokens)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    keys = (*lead, *step, size.heads, size.key)
    found = {
        "q": unit(normal(*lead, size.heads * size.groups, size.key)),
        "k": unit(normal(*keys)),
        "v": normal(*lead, *step, size.heads, width),
    }
    features = eval_size(s.features, 1 if s.diagonal else size.key)
    channels = {"": (), "k": (size.key,), "v": (width,), "c": (s.window,)}
    channels |= {"K": (size.key if s.diagonal else features,), "s": (s.slots,), "l": (s.levels,)}
    calm = 1 / (steepest(case) * s.window * widest(case, found["k"]))
    for c in s.coefficients:
        shape = (*lead, *(step if c.micro else ()), size.heads, *channels[c.axes])
        if c.name.startswith("log_"):
            least = (
                -0.05 if c.name == "log_gamma" else -0.3
            )  # a regression needs d_k tokens or more
            below = c.high - 0.01 * c.below
            found[c.name] = below + least * uniform(*shape) if c.high <= 0 else normal(*shape)
        elif c.low < 0:
            found[c.name] = (0.5 * normal(*shape)).clamp_max(c.high)
        elif c.name == "eta":
            most = min(0.6, 0.9 * calm, c.high / 1.1)
            found[c.name] = most * (0.05 + uniform(*shape))
        else:
            span = 0.9 * min(1.0, c.high - c.low) if c.high < torch.inf else 0.5
            found[c.name] = c.low + span * (uniform(*shape) + 0.01)
    for name in s.keys:
        found[name] = unit(normal(*keys))
    for scalar in case.rule.scalars:
        if scalar.declared.origin == "parameter":  # the same for every sequence and token
            x = found[str(scalar.argument)]
            found[str(scalar.argument)] = x[:1, :1].expand(x.shape) if tokens else x
    return {name: x.to(dtype) for name, x in found.items()}


def start(case: Case, arguments: Tensors, tokens: int = 5) -> Tensors:
    """A valid state that is not zero: what other tokens leave behind."""
    like = arguments["k"]
    size = Sizes(
        like.shape[0], tokens, like.shape[-2], like.shape[-1], arguments["v"].shape[-1],
    )  # fmt: skip
    other = inputs(case, tokens, seed=17, sizes=size)
    found: Tensors = case.operator(**other, form="recurrent", output_final_state=True)[1]
    kept = {n: x.detach() for n, x in found.items()}
    return {n: x.to(like.dtype) if x.is_floating_point() else x for n, x in kept.items()}


# -- runs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """Outputs, final states, and the gradients of every argument and of the initial state."""

    out: Tensor
    states: Tensors
    gradients: Tensors

    def parts(self) -> Iterator[tuple[str, Tensor]]:
        """Everything by name."""
        yield "out", self.out
        yield from ((f"state {n}", x) for n, x in self.states.items())
        yield from ((f"gradient of {n}", x) for n, x in self.gradients.items())


def weighed(x: Tensor) -> Tensor:
    """A scalar that every entry enters with a weight of its own."""
    weights = torch.cos(torch.arange(x.numel(), dtype=torch.float64)).reshape(x.shape)
    return (x * weights.to(x.dtype)).sum()


Pieces = str | tuple[tuple[str, int], ...]
"""A form, or forms one after another with the tokens that each takes."""


def run(
    case: Case, arguments: Tensors, pieces: Pieces, *, state: Tensors | None = None, **options: Any
) -> Result:
    """One run; the gradients go through the outputs and through the final state."""
    leaves = {n: x.clone().requires_grad_() for n, x in arguments.items()}
    first = {
        n: x.clone().requires_grad_() if x.is_floating_point() else x
        for n, x in (state or {}).items()
    }
    begun = beginning(case, arguments["k"], arguments["v"])
    params = {n: x.requires_grad_() for n, x in begun.items()}
    if params:
        options = {**options, "params": params}
    out, final = in_pieces(case, leaves, pieces, first, **options)
    loss = weighed(out)
    for x in final.values():
        loss = loss + weighed(x) if x.is_floating_point() else loss
    leaves |= {f"params.{n}": x for n, x in params.items()}
    sources = {**leaves, **{f"initial {n}": x for n, x in first.items() if x.requires_grad}}
    grads = gradients(loss, sources, case)
    return Result(out.detach(), {n: x.detach() for n, x in final.items()}, grads)


def in_pieces(
    case: Case, arguments: Tensors, pieces: Pieces, state: Tensors, **options: Any
) -> tuple[Tensor, Tensors]:
    """The outputs of pieces that pass their state on, joined, and the last state."""
    whole = arguments["q"].shape[1]
    outs, at = [], 0
    for form, tokens in ((pieces, whole),) if isinstance(pieces, str) else pieces:
        piece = {n: x[:, at : at + tokens] for n, x in arguments.items()}
        out, state = case.operator(
            **piece, form=form, initial_state=state, output_final_state=True, **options
        )
        outs.append(out)
        at += tokens
    assert at == whole
    return torch.cat(outs, 1), state


def gradients(loss: Tensor, sources: Tensors, case: Case | None = None) -> Tensors:
    """The gradient at each tensor, zero where the loss does not see it.

    Of a coefficient of the case that is the same at every token the sum over tokens: forms read
    it off different ones.
    """
    if not loss.requires_grad:
        return {n: torch.zeros_like(x) for n, x in sources.items()}
    raw = torch.autograd.grad(loss, list(sources.values()), allow_unused=True)
    found = {
        n: torch.zeros_like(x) if g is None else g
        for (n, x), g in zip(sources.items(), raw, strict=True)
    }
    for c in () if case is None else case.signature.coefficients:
        if c.same:
            found[c.name] = found[c.name].sum((0, 1))
    for name in ("initial P", "initial H"):  # symmetric: only that part has a meaning
        x = found.get(name)
        if x is not None and x.shape[-1] == x.shape[-2]:
            found[name] = (x + x.mT) / 2
    return found


# -- comparing -------------------------------------------------------------------------------


def error(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to 1 + the largest entry."""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if expected.numel() == 0:
        return 0.0
    found, expected = found.detach().double(), expected.detach().double()
    return float((found - expected).abs().max() / (1 + expected.abs().max()))


def errors(found: Result, expected: Result) -> dict[str, float]:
    """The error of each part."""
    other = dict(expected.parts())
    mine = dict(found.parts())
    assert mine.keys() == other.keys()
    return {n: error(x, other[n]) for n, x in mine.items()}


def agree(found: Result, expected: Result, tolerance: float = 1e-9) -> None:
    """Assert that two runs agree in everything, and name what does not."""
    wrong = {n: e for n, e in errors(found, expected).items() if not e <= tolerance}
    assert not wrong, wrong


def close(found: Tensors, expected: Tensors, tolerance: float = 1e-9) -> None:
    """Assert that two mappings of tensors agree, and name what does not."""
    assert found.keys() == expected.keys()
    every = {n: error(x, expected[n]) for n, x in found.items()}
    wrong = {n: e for n, e in every.items() if not e <= tolerance}
    assert not wrong, wrong


def joined(states: list[Tensors], axes: Mapping[str, str]) -> Tensors:
    """States of several rows as one, kept pairs filled up with zeros; ``axes`` after B and H."""
    found: Tensors = {}
    for name in states[0]:
        parts = [s[name] for s in states]
        growing = axes[name] if set(axes[name]) <= set("nkv") else ""
        for axis in (i for i, letter in enumerate(growing, 2) if letter == "n"):
            most = max(x.shape[axis] for x in parts)
            parts = [_longer(x, axis, most) for x in parts]
        found[name] = torch.cat(parts)
    return found


def _longer(x: Tensor, axis: int, size: int) -> Tensor:
    shape = list(x.shape)
    shape[axis] = size - shape[axis]
    return torch.cat([x, x.new_zeros(shape)], axis)


# -- the interpreter -------------------------------------------------------------------------


def interpreted(case: Case, arguments: Tensors, **options: Any) -> tuple[Tensor, Tensors]:
    """What the rule's interpreter says, its states by the operator's names."""
    rest = {n: x for n, x in arguments.items() if n not in ("q", "k", "v")}
    vectors = (arguments["q"], arguments["k"], arguments["v"])
    linear = not isinstance(case.rule, Layers)
    acts = case.rule.retained.mode == "prox" and case.period == 1 and linear
    if acts and "initial_state" not in options:
        options["initial_state"] = _beginning(case, arguments)
    if case.signature.params and "params" not in options:
        options["params"] = beginning(case, *vectors[1:])
    out, state = interpret(case.rule, *vectors, rest, **options)
    match case.rule:
        case Moments(solution=LeastSquares(constant=False) as solution):  # the ridge is inside H
            ridge = state["ridge"] * float(solution.ridge)
            state["H"] = state["H"] + ridge * torch.eye(state["H"].shape[-1])
            if solution.inverted:
                state["P"] = torch.linalg.inv(state["H"])
    return out, state


def _beginning(case: Case, arguments: Tensors) -> Tensors:
    """W_0 given as a state, so that a retention that acts on W itself begins at ∇R(W_0)."""
    one = {n: x[:, :1] for n, x in arguments.items()}
    rest = {n: x for n, x in one.items() if n not in ("q", "k", "v")}
    nothing = torch.zeros(one["q"].shape[:2], dtype=torch.bool)
    _, state = interpret(case.rule, one["q"], one["k"], one["v"], rest, mask=nothing)
    return {"W": state["W"]}


def _as_columns(states: Tensors, scale: Tensor) -> Tensors:
    """Behind a kernel: rows as the columns of a matrix, in the interpreter's names and units."""
    names = {"U": "W", "S": "S", "anchor": "anchor"}
    found = {
        other: states[n].mT * scale[..., *[None] * (4 - scale.ndim)]
        for n, other in names.items()
        if n in states
    }
    shares = ("shares", "S_shares", "anchor_shares")
    found |= {n: states[n][..., None, :] for n in shares if n in states}
    found |= {n: states[n] for n in ("K", "position")}
    if "v_tail" in states:
        found["tail.value"] = states["v_tail"].movedim(1, 2)[..., None]
    return found


def _layers_behind_a_kernel(states: Tensors) -> Tensors:
    """The same where the layer that sees the keys keeps rows, and the others are matrices."""
    behind = {n[1:] for n in states if n[0] == "U" and n[1:].isdigit()}
    found = {n: states[n] for n in ("K", "position")}
    for name, x in states.items():
        role = name.rstrip("0123456789")
        if role in ("W", "U", "S", "anchor", "norms") and name != role:
            tag = name.removeprefix(role)
            found["W" + tag if role == "U" else name] = x.mT if tag in behind else x
    if "v_tail" in states:
        found["tail.value"] = states["v_tail"].movedim(1, 2)[..., None]
    return found


def _one_a_head(state: Tensor) -> Tensor:
    """A weight that each channel of a diagonal memory has gathered by itself, as all of them."""
    if state.ndim != 3:
        return state
    assert state.eq(state[..., :1]).all()
    return state[..., 0]


def as_interpreted(states: Tensors) -> Tensors:
    """The operator's states in the interpreter's names and units, those that both have."""
    scale = torch.exp(states["m"]) if "m" in states else torch.ones(())
    if {"K", "U"} <= states.keys():
        return _as_columns(states, scale)
    if any(n[0] == "U" and n[1:].isdigit() for n in states):
        return _layers_behind_a_kernel(states)
    found: Tensors = {}
    for name in ("W", "A", "S", "anchor"):
        if name in states:
            found[name] = states[name] * scale[(..., *[None] * (states[name].ndim - scale.ndim))]
    if "n" in states:
        found["n.W"] = (states["n"] * scale[..., None])[..., None, :]
    if "K" in states:
        found["slots.W"] = states["K"].mT
    if "P" in states:
        found = {"P": states["P"]}
    shared = ("H", "U", "position", "keys", "values", "log_kept", "factor", "solved")
    found |= {n: states[n] for n in shared if n in states}
    roles = ("W", "A", "S", "held", "anchor", "norms", "squares")
    found |= {
        n: x for n, x in states.items() if n[-1].isdigit() and n.rstrip("0123456789") in roles
    }
    means = ("squares", "S_weight", "squares_weight")
    found |= {n: states[n] for n in ("held", "norms", *means) if n in states}
    found |= {n: _one_a_head(x) for n, x in found.items() if n.endswith("_weight")}
    if "v_tail" in states:
        found["tail.value"] = states["v_tail"].movedim(1, 2)[..., None]
    return found
