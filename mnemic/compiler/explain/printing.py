"""SymPy expressions of a rule as one line of Unicode text, or as LaTeX."""

import re
from functools import lru_cache
from typing import Any, ClassVar

import sympy as sp
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import precedence
from sympy.printing.str import StrPrinter

from mnemic.compiler import symbols as sym
from mnemic.compiler.explain import letters
from mnemic.compiler.implicit import PLACE, ROOT, roots_of
from mnemic.compiler.numbers import compare
from mnemic.compiler.problem import HEAD, HEADS, TIME
from mnemic.compiler.symbolic import simplified

TEXT = {
    sym.y: "ŷ", sym.v: "v", sym.e: "(ŷ − v)", sym.n: "‖ŷ − v‖", sym.kappa: "‖φ‖²", sym.w: "w",
    sym.a: "a", sym.zeta: "ζ", sym.nu: "ν", sym.d2: "d²", sym.kq: "kᵀq", sym.kk: "‖k‖²",
    sym.qq: "‖q‖²",
}  # fmt: skip
TEX = {
    sym.y: r"\hat y", sym.v: "v", sym.e: r"(\hat y - v)", sym.n: r"\lVert\hat y - v\rVert",
    sym.kappa: r"\lVert\phi\rVert^2", sym.w: "w", sym.a: "a", sym.zeta: r"\zeta", sym.nu: r"\nu",
    sym.d2: "d^2", sym.kq: r"k^\top q", sym.kk: r"\lVert k\rVert^2", sym.qq: r"\lVert q\rVert^2",
}  # fmt: skip
STEPLESS = {HEAD, HEADS, TIME}
SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def steps_of(rule: Any) -> dict[str, bool]:
    """Return whether each coefficient carries the index t (it comes from the input)."""
    return {s.name: s.declared.origin == "input" for s in rule.scalars}


class _Text(StrPrinter):  # type: ignore[misc]
    """One line; powers as superscripts, products with a dot, sums in the usual order."""

    def _print_Symbol(self, expr: Any) -> str:
        if expr in TEXT:
            return TEXT[expr]
        return letters.letter(expr.name) + ("ₜ" if self._settings["timed"].get(expr.name) else "")

    _default_settings: ClassVar[dict[str, Any]] = {**StrPrinter._default_settings, "timed": {}}

    def _print_Pi(self, expr: Any) -> str:
        return "π"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.args
        if power == sp.Rational(1, 2):
            return f"√({self._print(base)})"
        if power.is_Rational and power.is_negative:
            below = base**-power
            return f"1/{self.parenthesize(below, 55 if below.is_Pow else 75)}"
        shown = self.parenthesize(base, precedence(expr), strict=False)
        if power.is_Integer:
            return str(shown) + str(power).translate(SUPERSCRIPT)
        raised = self._print(power)
        return f"{shown}^{raised}" if power.is_Symbol or power.is_Float else f"{shown}^({raised})"

    def _print_Mul(self, expr: Any) -> str:
        top, bottom = sp.fraction(expr, exact=True)
        if bottom != 1:
            below = self.parenthesize(bottom, 55 if bottom.is_Pow else 75)
            return f"{self._product(top)}/{below}"
        return self._product(expr)

    def _product(self, expr: Any) -> str:
        sign = ""
        if expr.could_extract_minus_sign() and not expr.is_Add:
            sign, expr = "−", -expr
        factors = sp.Mul.make_args(expr)
        shown = [self.parenthesize(f, 55) if len(factors) > 1 or sign else
                 self.parenthesize(f, 45) for f in _ordered(factors)]  # fmt: skip
        return sign + "·".join(shown)

    def _print_Add(self, expr: Any, order: Any = None) -> str:
        terms = sorted(expr.args, key=lambda t: (t.could_extract_minus_sign(), str(t)))
        text = str(self._print(terms[0]))
        for term in terms[1:]:
            shown = self._print(term)
            text += f" − {shown[1:]}" if shown.startswith("−") else f" + {shown}"
        return text

    def _print_Piecewise(self, expr: Any) -> str:
        parts = [
            f"{self._print(value)} " + ("otherwise" if cond == sp.true else
                                        f"if {self._print(cond)}")
            for value, cond in expr.args
        ]  # fmt: skip
        return "{" + "; ".join(parts) + "}"

    def _print_Relational(self, expr: Any) -> str:
        operator = {"<=": "≤", ">=": "≥", "==": "=", "!=": "≠"}.get(expr.rel_op, expr.rel_op)
        return f"{self._print(expr.lhs)} {operator} {self._print(expr.rhs)}"

    def _print_Abs(self, expr: Any) -> str:
        return f"|{_bare(self._print(expr.args[0]))}|"

    def _print_Integer(self, expr: Any) -> str:
        return str(expr).replace("-", "−")

    _print_NegativeOne = _print_Rational = _print_Integer

    def _print_Float(self, expr: Any) -> str:
        return f"{float(expr):g}"

    def _print_Infinity(self, expr: Any) -> str:
        return "∞"

    def _print_sigmoid(self, expr: Any) -> str:
        return f"σ({self._print(expr.args[0])})"

    def _print_normal_cdf(self, expr: Any) -> str:
        return f"Φ({self._print(expr.args[0])})"

    def _print_NewErrorBase(self, expr: Any) -> str:
        return f"root[{', '.join(map(self._print, expr.equations))}]"

    def _print_steep(self, expr: Any) -> str:
        return str(self._print(expr.args[2]))

    def _print_Min(self, expr: Any) -> str:
        return f"min({', '.join(_bare(self._print(a)) for a in sorted(expr.args, key=str))})"

    def _print_Max(self, expr: Any) -> str:
        return f"max({', '.join(_bare(self._print(a)) for a in sorted(expr.args, key=str))})"

    def _print_Function(self, expr: Any) -> str:
        return f"{expr.func.__name__}({', '.join(_bare(self._print(a)) for a in expr.args)})"

    _print_exp = _print_sign = _print_log = _print_Function


class _Latex(LatexPrinter):  # type: ignore[misc]
    """LaTeX with the names of a rule."""

    _default_settings: ClassVar[dict[str, Any]] = {**LatexPrinter._default_settings, "timed": {}}

    def _print_Symbol(self, expr: Any, style: str = "plain") -> str:
        if expr in TEX:
            return TEX[expr]
        found = letters.tex(expr.name)
        if not self._settings["timed"].get(expr.name):
            return found
        letter, _, index = found.rpartition("_{") if found.endswith("}") else ("", "", "")
        return f"{letter}_{{{index[:-1]},t}}" if letter else f"{found}_t"

    def _print_sigmoid(self, expr: Any, exp: Any = None) -> str:
        shown = rf"\sigma\left({self._print(expr.args[0])}\right)"
        return shown if exp is None else f"{shown}^{{{exp}}}"

    def _print_NewErrorBase(self, expr: Any, exp: Any = None) -> str:
        inner = r",\ ".join(map(self._print, expr.equations))
        shown = rf"\operatorname{{root}}_s\bigl[{inner}\bigr]"
        return shown if exp is None else f"{shown}^{{{exp}}}"

    def _print_steep(self, expr: Any, exp: Any = None) -> str:
        shown = str(self._print(expr.args[2]))
        return shown if exp is None else rf"\left({shown}\right)^{{{exp}}}"

    def _print_normal_cdf(self, expr: Any, exp: Any = None) -> str:
        shown = rf"\Phi\left({self._print(expr.args[0])}\right)"
        return shown if exp is None else f"{shown}^{{{exp}}}"


def _ordered(factors: tuple[Any, ...]) -> list[Any]:
    return sorted(factors, key=lambda f: (not f.is_number, f.is_Add, f.has(sp.exp), str(f)))


def _bare(text: str) -> str:
    inner = text[1:-1]
    whole = text.startswith("(") and text.endswith(")") and not re.search(r"[()]", inner)
    return inner if whole else text


def readable(expr: Any) -> Any:
    """Write an expression in e = ŷ − v where it reads ŷ and v in that difference only."""
    expr = sp.sympify(expr)
    if not expr.has(sym.y, sym.v):
        return expr
    return _in_error(expr)


@lru_cache(maxsize=1 << 8)
def _in_error(expr: Any) -> Any:
    """Return an expression of ŷ and v in e alone; itself where v matters beside e.

    Numbers tell most of these apart, so that `simplified`, which is slow, is not asked in vain.
    """
    moved = expr.subs(sym.y, sym.e + sym.v)
    if not moved.has(sym.v):
        return moved
    if roots_of(moved) or compare(moved, moved.subs(sym.v, sym.v + 1)) == "different":
        return expr
    moved = simplified(moved)
    return expr if moved.has(sym.v) else moved


def _through_root(expr: Any) -> tuple[Any, Any | None]:
    """Return an expression in s and u, and the root that it reads in several places, or None."""
    roots = roots_of(expr)
    if len(roots) != 1 or sp.sympify(expr).xreplace({roots[0]: ROOT}).count(ROOT) == 1:
        return expr, None
    (root,) = roots
    plain = sp.sympify(expr).subs({root.place: PLACE, -root.place: -PLACE}).xreplace({root: ROOT})
    return plain, root


def text(expr: Any, timed: dict[str, bool] | None = None) -> str:
    """Return one line of text.

    >>> text(sym.coefficient("eta") * (sym.y - sym.v), {"eta": True})
    'ηₜ·(ŷ − v)'
    """
    plain, root = _through_root(expr)
    if root is not None:
        return f"{text(plain, timed)} with s = {text(root, timed)}"
    return _bare(_Text({"timed": timed or {}}).doprint(readable(expr)))


def latex(expr: Any, timed: dict[str, bool] | None = None, times: str | None = None) -> str:
    """Return the expression in LaTeX; ``times`` stands between factors."""
    plain, root = _through_root(expr)
    if root is not None:
        return rf"{latex(plain, timed, times)} \text{{ with }} s = {latex(root, timed, times)}"
    settings = {"timed": timed or {}, "mul_symbol": times}
    found: str = _Latex(settings).doprint(readable(expr))
    for wide in (r"\left((\hat y - v) \right)", r"\left({(\hat y - v)}\right)"):
        found = found.replace(wide, r"(\hat y - v)")
    found = found.replace(r"\left|{(\hat y - v)}\right|", r"\left|\hat y - v\right|")
    return r"\hat y - v" if found == r"(\hat y - v)" else found
