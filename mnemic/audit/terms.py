"""Find the term of a printed line that is at fault: the one that a factor would correct."""

import ast
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from mnemic.audit.entry import Equation
from mnemic.audit.lines import values


def differing_term(
    line: Equation, draws: Sequence[Mapping[str, Any]], solutions: Sequence[Mapping[str, Any]]
) -> str | None:
    """Return the terms that a constant factor would correct, with it; None where none would.

    The last assignment of the line is read as a sum of terms. Constant factors for them, the same
    at every draw, are fitted to what solves the problem.
    """
    assert line.rule is not None
    body = ast.parse(line.rule.strip()).body
    last = body[-1]
    assert isinstance(last, ast.Assign)
    name = ast.unparse(last.targets[0])
    if not all(name in solution for solution in solutions):
        return None
    terms = _terms(last.value, 1)
    before = "; ".join(ast.unparse(statement) for statement in body[:-1])
    columns = [_column(before, text, sign, draws) for text, sign in terms]
    wanted = np.concatenate([s[name].flatten().numpy() for s in solutions])
    if any(column is None or column.shape != wanted.shape for column in columns):
        return None
    design = np.stack([c for c in columns if c is not None], axis=1)
    factors, *_ = np.linalg.lstsq(design, wanted, rcond=None)
    if float(np.abs(design @ factors - wanted).max()) > 1e-6 * (1 + float(np.abs(wanted).max())):
        return None
    return ", ".join(_correct(text, sign, f) for (text, sign), f in zip(terms, factors, strict=True)
                     if abs(f - 1) > 1e-6) or None  # fmt: skip


def _terms(tree: ast.expr, sign: int) -> list[tuple[str, int]]:
    match tree:
        case ast.BinOp(left, ast.Add(), right):
            return _terms(left, sign) + _terms(right, sign)
        case ast.BinOp(left, ast.Sub(), right):
            return _terms(left, sign) + _terms(right, -sign)
        case ast.UnaryOp(ast.USub(), operand):
            return _terms(operand, -sign)
        case ast.BinOp(left, ast.Mult() | ast.MatMult() as op, right):
            return [
                (ast.unparse(ast.BinOp(_parsed(a), op, _parsed(b))), s * t * sign)
                for a, s in _terms(left, 1) for b, t in _terms(right, 1)
            ]  # fmt: skip
    return [(ast.unparse(tree), sign)]


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _column(
    before: str, text: str, sign: int, draws: Sequence[Mapping[str, Any]]
) -> np.ndarray | None:
    lead = f"{before}; " if before else ""
    try:
        found = [values(f"{lead}TERM = {text}", given)["TERM"] for given in draws]
    except (RuntimeError, KeyError, ValueError):
        return None
    return sign * np.concatenate([x.flatten().numpy() for x in found])


def _correct(text: str, sign: int, factor: float) -> str:
    shown = f"{'-' if sign < 0 else ''}{text}"
    if abs(factor) < 1e-6:
        return f"{shown} should not be there"
    nearest = Fraction(float(factor)).limit_denominator(64)
    exact = nearest if abs(float(nearest) - factor) < 1e-6 else f"{factor:.6g}"
    return f"{shown} should have the factor {exact}"
