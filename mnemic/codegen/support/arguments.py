"""Checks of an operator's arguments: one clear error each, before anything is computed."""

import difflib
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .buffers import debugging
from .pickled import Pickled
from .signature import Coefficient, Signature
from .sizes import eval_size
from .transforms import functional

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


OPTIONS = ("form", "initial_state", "output_final_state", "params", "cu_seqlens", "mask",
           "chunk_size", "states_at", "state_dtype")  # fmt: skip
"""What an operator takes beside vectors and coefficients."""


ELSEWHERE = {"g": "log_alpha", "gk": "log_alpha", "beta": "eta", "state": "initial_state",
             "output_state": "output_final_state", "initial_state": "state",
             "output_final_state": "output_state", "attention_mask": "mask", "hidden_size": "dim",
             "d_model": "dim", "num_heads": "heads", "n_heads": "heads", "head_dim": "key_dim",
             "head_k_dim": "key_dim", "head_v_dim": "value_dim"}  # fmt: skip
"""What other libraries call an argument, and layers one of rules, or rules one of layers."""


class ArgumentError(Pickled, ValueError):
    """An argument that the operator cannot take: which, its value, and what is allowed."""


def check(
    signature: Signature, q: Tensor, k: Tensor, v: Tensor, coefficients: Mapping[str, Any],
    mask: Tensor | None, cu_seqlens: Tensor | None,
) -> None:  # fmt: skip
    """Check names, shapes, dtypes and devices, and in debug mode (``MNEMIC_DEBUG``) values too."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _check_tensor(signature, name, tensor)
    _check_names(signature, coefficients)
    sizes = _sizes(signature, q, k, v)
    _check_vectors(signature, q, k, v, sizes)
    for coefficient in signature.coefficients:
        value = coefficients[coefficient.name]
        expected = _expected(signature, coefficient.axes, coefficient.micro, sizes)
        _check_value(signature, coefficient.name, value, expected, q)
        if coefficient.same:
            _check_same(signature, coefficient.name, value, mask)
    for name in signature.keys:
        expected = _expected(signature, "s" if signature.slots else "k", True, sizes)
        _check_value(signature, name, coefficients[name], expected, q)
    check_masks(signature, mask, cu_seqlens, sizes)
    if debugging() and not torch.compiler.is_compiling():
        check_numbers(signature, {"q": q, "k": k, "v": v, **coefficients}, mask)


def check_choices(
    signature: Signature, state: Mapping[str, Tensor] | None, params: Mapping[str, Tensor] | None,
    chunk_size: int | None,
) -> None:  # fmt: skip
    """Check that states and parameters are tensors by name, and that the chunk size is a number."""
    check_state(signature, state)
    _check_mapping(signature, "params", params)
    if debugging() and not torch.compiler.is_compiling():
        named = (("initial_state", state or {}), ("params", params or {}))
        for what, tensors in named:
            for name, x in tensors.items():
                if isinstance(x, Tensor) and x.is_floating_point():
                    _check_finite(signature, f"{what}['{name}']", x.detach())
    whole = isinstance(chunk_size, int) and not isinstance(chunk_size, bool) and chunk_size >= 1
    if chunk_size is not None and not whole:
        need = "a whole number of at least 1, or None, is needed"
        raise fail(signature, f"chunk_size: read {chunk_size!r}, {need}")


def check_state(signature: Signature, state: Mapping[str, Tensor] | None) -> None:
    """Check a carried state: a mapping from names that the rule has to tensors."""
    _check_mapping(signature, "initial_state", state)
    names = tuple(s.name for s in signature.states)
    for name, x in (state or {}).items():
        one_of(signature, "initial_state", name, names)
        if not isinstance(x, Tensor):
            raise fail(signature, f"initial_state['{name}']: {not_a_tensor(x)}")


def _check_mapping(signature: Signature, name: str, given: object) -> None:
    if given is not None and not isinstance(given, Mapping):
        read = type(given).__name__
        raise fail(signature, f"{name}: read {read}, a mapping of names to tensors is needed")


def not_a_tensor(x: object) -> str:
    """Return the words in which an error message describes a value that should be a tensor."""
    return f"read {type(x).__name__}, a torch.Tensor is needed"


def check_numbers(
    signature: Signature, given: Mapping[str, Tensor], mask: Tensor | None = None
) -> None:
    """Check that all values are finite and every coefficient is in its range, at the tokens where a
    mask [B, T] is true."""
    told = {c.name: c for c in signature.coefficients}
    for name, whole in given.items():
        x = whole.detach() if mask is None else whole.detach()[mask]
        if not x.numel():
            continue
        _check_finite(signature, name, x)
        if name in told:
            _check_range(signature, told[name], x)


def _check_finite(signature: Signature, name: str, x: Tensor) -> None:
    if bool(x.isnan().any()):
        raise fail(signature, f"{name}: holds NaN")
    if bool(x.isinf().any()):
        raise fail(signature, f"{name}: read {float(x[x.isinf()][0]):g}, a finite number is needed")


def _check_range(signature: Signature, told: Coefficient, x: Tensor) -> None:
    least, most = float(x.min()), float(x.max())
    if least < told.low or (told.above and least == told.low):
        allowed = f"{'above' if told.above else 'at least'} {told.low:g}"
        read = f"{told.name}: read {least:g}, {allowed} is allowed"
        raise fail(signature, f"{read} ({told.meaning})")
    if most > told.high or (told.below and most == told.high):
        allowed = f"{'below' if told.below else 'at most'} {told.high:g}"
        read = f"{told.name}: read {most:g}, {allowed} is allowed"
        raise fail(signature, f"{read} ({told.meaning})")


def check_reading(
    signature: Signature, q: Tensor, k: Tensor, v: Tensor, coefficients: Mapping[str, Any],
    needed: Collection[str],
) -> None:  # fmt: skip
    """Check the arguments of a read: a query, and the coefficients ``needed`` for it."""
    _check_tensor(signature, "q", q)
    for name in coefficients:
        one_of(signature, "unknown argument", name, ("q", "state", "params", "sizes", *needed))
    missing = [name for name in needed if coefficients.get(name) is None]
    if missing:
        raise fail(signature, f"missing: {', '.join(missing)}")
    sizes = _sizes(signature, q, k, v)
    _check_vectors(signature, q, k, v, sizes)
    for coefficient in signature.coefficients:
        if coefficient.name in needed:
            expected = _expected(signature, coefficient.axes, coefficient.micro, sizes)
            _check_value(signature, coefficient.name, coefficients[coefficient.name], expected, q)
    if debugging() and not torch.compiler.is_compiling():
        check_numbers(signature, {"q": q, **coefficients})


def check_params(
    signature: Signature, params: Mapping[str, Tensor], state: Mapping[str, Tensor],
    q: Tensor, k: Tensor, v: Tensor,
) -> None:  # fmt: skip
    """Check the initial duals of a deep memory: all there (or in the state), and of one width."""
    told = {p.name: p for p in signature.params}
    for name in params:
        one_of(signature, "params", name, tuple(told))
    carried = {s.of for s in signature.states if s.begins and s.name in state}
    missing = [str(p) for name, p in told.items() if name not in params and name not in carried]
    if missing:
        raise fail(signature, f"params: missing {'; '.join(missing)} (the memory's start)")
    features = eval_size(signature.features, q.shape[-1])
    sizes = {"v": v.shape[-1], "D": features * (2 if signature.phase else 1)}
    for name, x in params.items():
        _check_tensor(signature, f"params['{name}']", x)
        rows, columns = told[name].rows, told[name].columns
        fits = x.ndim == 3 and x.shape[0] == k.shape[-2]
        fits = fits and all(
            size == sizes.setdefault(side, size)
            for side, size in zip((rows, columns), x.shape[1:], strict=False)
        )
        if not fits:
            shown = [sizes.get(side, side) for side in (rows, columns)]
            expected = ", ".join(str(s) for s in (k.shape[-2], *shown))
            raise fail(
                signature, f"params['{name}']: read shape {list(x.shape)}, expected [{expected}]"
            )


def fail(signature: Signature, message: str) -> ArgumentError:
    """Return an ``ArgumentError`` whose message begins with the operator's name."""
    return ArgumentError(f"{signature.name}: {message}")


def one_of(signature: Signature, what: str, word: str, allowed: Collection[str]) -> None:
    """Refuse a word that is not in ``allowed``; the message names the nearest allowed one."""
    if word not in allowed:
        close = difflib.get_close_matches(str(word), list(allowed), 1)
        if (same := ELSEWHERE.get(word, "")) in allowed:
            close = [same]
        hint = f"; did you mean '{close[0]}'?" if close else ""
        names = ", ".join(allowed) or "none"
        raise fail(signature, f"{what}: read '{word}', allowed: {names}{hint}")


def _check_tensor(signature: Signature, name: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise fail(signature, f"{name}: {not_a_tensor(tensor)}")
    if tensor.dtype not in DTYPES:
        names = ", ".join(str(d).removeprefix("torch.") for d in DTYPES)
        raise fail(signature, f"{name}: read dtype {tensor.dtype}, allowed: {names}")


def _check_names(signature: Signature, coefficients: Mapping[str, Any]) -> None:
    names = (*(c.name for c in signature.coefficients), *signature.keys)
    for name in coefficients:
        one_of(signature, "unknown argument", name, ("q", "k", "v", *names, *OPTIONS))
    missing = [name for name in names if coefficients.get(name) is None]
    if missing:
        texts = {c.name: str(c) for c in signature.coefficients}
        listed = "; ".join(texts.get(n, f"{n} (as k)") for n in missing)
        raise fail(signature, f"missing: {listed}")


def _sizes(signature: Signature, q: Tensor, k: Tensor, v: Tensor) -> dict[str, int]:
    if q.ndim != 4:
        raise fail(signature, f"q: read shape {list(q.shape)}, expected [B, T, H, d_k]")
    rank = 5 if signature.steps > 1 else 4
    layout = "[B, T, n, H, d]" if rank == 5 else "[B, T, H, d]"
    for name, x in (("k", k), ("v", v)):
        if x.ndim != rank:
            raise fail(signature, f"{name}: read shape {list(x.shape)}, expected {layout}")
    batch, time, heads, width = q.shape
    return {"B": batch, "T": time, "q heads": heads, "H": k.shape[-2], "k": width,
            "v": v.shape[-1], "c": signature.window, "n": signature.steps,
            "s": signature.slots, "l": signature.levels}  # fmt: skip


def _check_vectors(
    signature: Signature, q: Tensor, k: Tensor, v: Tensor, sizes: dict[str, int]
) -> None:
    for name, tensor, channel in (("k", k, "k"), ("v", v, "v")):
        expected = _expected(signature, channel, True, sizes)
        if tuple(tensor.shape) != expected:
            shown = f"{list(tensor.shape)}, expected {list(expected)}"
            raise fail(signature, f"{name}: read shape {shown} (q has {list(q.shape)})")
        if tensor.dtype != q.dtype or tensor.device != q.device:
            shown = f"{tensor.dtype} on {tensor.device}, q has {q.dtype} on {q.device}"
            raise fail(signature, f"{name}: read {shown}")
    if sizes["q heads"] % sizes["H"]:
        shown = f"q has {sizes['q heads']} heads, k has {sizes['H']}"
        raise fail(signature, f"q's heads must be a multiple of k's: {shown}")
    if signature.complex:
        if 2 * sizes["k"] != sizes["v"]:
            told = f"read {sizes['k']} and {sizes['v']}"
            raise fail(signature, f"d_v = 2·d_k is needed, real and imaginary parts; {told}")
    elif (signature.diagonal or signature.square) and sizes["k"] != sizes["v"]:
        raise fail(signature, f"d_k = d_v is needed; read {sizes['k']} and {sizes['v']}")


def _expected(
    signature: Signature, axes: str, micro: bool, sizes: dict[str, int]
) -> tuple[int, ...]:
    steps = (sizes["n"],) if micro and signature.steps > 1 else ()
    channel = {
        "": (),
        "k": (sizes["k"],),
        "v": (sizes["v"],),
        "c": (sizes["c"],),
        "s": (sizes["s"],),
        "l": (sizes["l"],),
    }
    shape = (sizes["B"], sizes["T"], *steps, sizes["H"])
    return (*shape, *channel.get(axes, (-1,)))


def _check_value(
    signature: Signature, name: str, value: Any, expected: tuple[int, ...], q: Tensor
) -> None:
    _check_tensor(signature, name, value)
    shape = tuple(value.shape)
    fits = len(shape) == len(expected) and all(
        e in (-1, s) for s, e in zip(shape, expected, strict=True)
    )
    if not fits:
        shown = ", ".join("D" if e == -1 else str(e) for e in expected)
        raise fail(signature, f"{name}: read shape {list(shape)}, expected [{shown}]")
    if value.device != q.device:
        raise fail(signature, f"{name}: read device {value.device}, q is on {q.device}")
    if value.dtype == torch.float64 != q.dtype:
        allowed = f"beside q's {q.dtype} at most torch.float32 is allowed"
        raise fail(signature, f"{name}: read dtype {value.dtype}, {allowed}")


def _check_same(signature: Signature, name: str, value: Tensor, mask: Tensor | None) -> None:
    """Check that a coefficient is the same at every token; on a device in debug mode only."""
    repeated = value.stride()[:2] == (0, 0)
    if repeated or not value.numel() or torch.compiler.is_compiling() or functional():
        return
    if value.device.type != "cpu" and not debugging():
        return  # to compare them here would wait for the device
    rows = value.flatten(0, 1) if mask is None else value[mask]
    if not bool((rows == rows[:1]).all()):
        raise fail(signature, f"{name}: differs between tokens, one number a head is needed")


def check_masks(
    signature: Signature, mask: Tensor | None, cu_seqlens: Tensor | None, sizes: dict[str, int]
) -> None:
    """Check a mask, or the offsets of packed documents, against B and T.

    Offsets on a device other than the CPU are read in debug mode only.
    """
    for name, x in (("mask", mask), ("cu_seqlens", cu_seqlens)):
        if x is not None and not isinstance(x, Tensor):
            raise fail(signature, f"{name}: {not_a_tensor(x)}")
    if mask is not None:
        if mask.dtype != torch.bool or tuple(mask.shape) != (sizes["B"], sizes["T"]):
            shown = f"{mask.dtype} {list(mask.shape)}"
            expected = f"torch.bool [{sizes['B']}, {sizes['T']}]"
            raise fail(signature, f"mask: read {shown}, expected {expected}")
        if cu_seqlens is not None:
            raise fail(signature, "give mask or cu_seqlens, not both")
    if cu_seqlens is None:
        return
    if sizes["B"] != 1:
        raise fail(signature, f"cu_seqlens packs documents into B = 1; read B = {sizes['B']}")
    if cu_seqlens.ndim != 1 or cu_seqlens.shape[0] < 2 or cu_seqlens.is_floating_point():
        shown = f"{cu_seqlens.dtype} {list(cu_seqlens.shape)}"
        raise fail(signature, f"cu_seqlens: read {shown}, whole numbers [documents + 1] are needed")
    if cu_seqlens.device.type != "cpu" and not debugging():
        return  # to read them here would wait for the device
    if torch.compiler.is_compiling():
        return
    ends = cu_seqlens.tolist()
    rising = all(a <= b for a, b in pairwise(ends))
    if ends[0] != 0 or ends[-1] != sizes["T"] or not rising:
        raise fail(signature, f"cu_seqlens must rise from 0 to T = {sizes['T']}; read {ends}")
