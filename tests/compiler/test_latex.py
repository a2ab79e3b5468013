"""The derivation as LaTeX: ASCII and known control words alone, and pdflatex takes it."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packaged import CORE, NAMES, rule_of

from mnemic.compiler.derive import derive_spec
from mnemic.compiler.explain import letters
from mnemic.compiler.explain.prose import prose
from mnemic.compiler.explain.render_latex import latex_of, to_latex
from mnemic.compiler.explain.tex_lines import WIDTH, aligned, length, lines
from mnemic.dsl.spec import Spec

KERNEL = """
    bigl bigr linewidth par raggedright
    Delta Gamma H Lambda O Omega Phi Pi Psi S Sigma Theta Upsilon Xi alpha arg b backslash bar begin
    beta c cdot chi circ cos cosh delta dot dots ell emptyset end epsilon equiv eta exists exp
    forall frac gamma ge geq hat i in infty int iota item kappa k l lambda langle lceil le
    left leftarrow leftrightarrow leq lfloor ll ln log max min mu nabla ne neg neq nu o odot omega
    oplus otimes partial phi pi pm prime prod propto psi quad qquad r rangle rceil rfloor rho
    right Rightarrow section sigma sim sin sinh sqrt ss subset sum surd tan tanh tau texttt textbf
    theta tilde times to top u upsilon v vee wedge xi zeta approx cap cup mathrm leftrightarrow
    min gg AE ae L
"""
AMS = "dfrac tfrac lVert rVert lvert rvert operatorname text tag binom"
KNOWN = frozenset(f"{KERNEL} {AMS}".split())
"""Control words of LaTeX itself and of amsmath and amssymb; held against TeX below."""

OWN: dict[str, dict[str, Any]] = {
    "greek names": {
        "title": "Größe χ ≤ ‖Φ‖² — 50 % of $x_1$ & \\more ← ŷ, k̃ᵢ",
        "bias": {"expr": "mu*log(cosh(e*my_gain/kappa2))"},
        "coefficients": {"mu": "token", "kappa2": "token", "my_gain": "learned"},
        "optimizer": {"rate": "token"},
    },
    "layers": {
        "memory": {"kind": "mlp", "depth": 3, "activation": "gelu", "residual": True, "norm": True},
        "bias": "l2", "optimizer": {"rate": "token", "anchor": {"chunk": 4}},
    },
    "gated layers": {
        "memory": {"kind": "glu", "activation": "silu"},
        "bias": {"kind": "huber", "delta": "token"},
        "optimizer": {"rate": "token"},
    },
    "kernel": {"features": {"kind": "exponential"}, "bias": "l2", "window": 3,
               "optimizer": {"method": "momentum", "momentum": "token", "rate": "token"}},
    "levels": {"bias": "l2", "readout": {"levels": "token"}},
    "own keys": {"bias": "l2", "window": 3, "keys": {"erase": "own"}},
    "window": {"bias": {"expr": "sqrt(1+n**2)"}, "window": 4, "weights": "window",
               "optimizer": {"rate": "token"}},
    "threshold": {"bias": {"kind": "huber", "delta": "token"}, "optimizer": {"rate": "token"},
                  "retention": {"view": "ftrl", "global": {"elastic": {"l1": "token", "l2": 0.1}}}},
    "root": {"bias": {"expr": "log(cosh(e))"},
             "optimizer": {"method": "implicit", "rate": "token"}},
}  # fmt: skip


@cache
def shown(name: str) -> str:
    if name in OWN:
        return to_latex(derive_spec(Spec.model_validate({"name": "mine", **OWN[name]})))
    return to_latex(rule_of(name))


def page(*sections: str) -> str:
    head = "\\documentclass{article}\n\\usepackage{amsmath,amssymb}\n\\begin{document}\n"
    return head + "\n\\clearpage\n".join(sections) + "\n\\end{document}\n"


def compiled(text: str, folder: Path) -> str:
    """What pdflatex says of a page; skips where there is no pdflatex."""
    program = shutil.which("pdflatex")
    if program is None:
        pytest.skip("pdflatex is not installed: apt-get install texlive-latex-recommended")
    (folder / "page.tex").write_text(text, encoding="utf-8")
    command = [program, "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=120)
    said = ended.stdout.decode("utf-8", "replace")
    assert ended.returncode == 0, said[-2000:]
    return said


@pytest.mark.some(8)
@pytest.mark.parametrize("name", [*NAMES, *OWN])
def test_every_character_and_control_word_is_known(name: str) -> None:
    text = shown(name)
    assert text.isascii(), sorted({c for c in text if not c.isascii()})
    words = re.findall(r"\\([A-Za-z]+|.)", text)
    assert {word for word in words if word.isalpha()} <= KNOWN


def test_pdflatex_takes_every_derivation(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In the first tier of every sixth spec of its core."""
    names = NAMES if request.config.getoption("tier") == "full" else CORE[::6]
    said = compiled(page(*(shown(name) for name in (*names, *OWN))), tmp_path)
    assert "Missing character" not in said
    wide = re.findall(r"Overfull \\hbox \(([0-9.]+)pt", said)
    assert [points for points in wide if float(points) > 5] == [], "over the margin"
    assert (tmp_path / "page.pdf").stat().st_size > 0


def test_what_counts_as_known_is_defined(tmp_path: Path) -> None:
    lines = [rf"\ifdefined\{word}\else\errmessage{{{word}}}\fi" for word in sorted(KNOWN)]
    compiled(page("x" + "\n".join(lines)), tmp_path)


def test_pdflatex_takes_any_text(tmp_path: Path) -> None:
    """Greek, Latin with accents, scripts, marks, and what there is no sign for."""
    blocks = [(0x20, 0x7F), (0xA0, 0x180), (0x370, 0x400), (0x1D2C, 0x1D6B), (0x2000, 0x2300)]
    signs = [chr(i) for low, high in blocks for i in range(low, high) if chr(i).isprintable()]
    marked = [letter + chr(mark) for letter in "kvWχ" for mark in range(0x300, 0x345)]
    text = prose("\n".join([*signs, *marked, "中", "x̂̄", "a_1 ~ $y$ \\ {z} ^"]))
    assert text.isascii()
    compiled(page(text), tmp_path)


def test_a_long_formula_is_broken_between_its_parts() -> None:
    parts = [rf"z_{{{i},t}} = W_{{{i},\mathrm{{ref}}}} h_{{{i},t}}" for i in range(9)]
    whole = r",\quad ".join(parts)
    assert aligned(parts[0]) == parts[0]
    assert len(lines(whole)) > 1
    assert " ".join(line.removesuffix(",") for line in lines(whole)).replace(r",\quad", "") == (
        " ".join(parts)
    )
    assert all(length(line) <= WIDTH for line in lines(whole))
    grouped = rf"\left\{{{whole}\right\}} \text{{ of {{{whole}}} }}"
    inside = rf"f_{{{whole}}}"
    assert lines(inside) == [inside], "braces stay whole"
    assert "".join(lines(grouped)).count("{") == grouped.count("{")


def test_a_fraction_is_as_wide_as_its_wider_half() -> None:
    assert length(r"\frac{a b c d}{e}") == length("a b c d")
    assert length(r"\frac{\frac{a}{b c}}{d e f}") == length("d e f")
    assert length(r"x_{i}") < length("x i")


def test_sums_and_letters_with_indices_are_formulas() -> None:
    assert prose("minimise Σ_(i=t−3..t) γᵢ ℓ(W; kᵢ, vᵢ)") == (
        r"minimise $\sum_{i=t-3}^{t}$ $\gamma_{i}$ $\ell$(W; $k_{i}$, $v_{i}$)"
    )
    assert prose("Σ_(i≤t) wᵢ, Π_(j=i+1..t) γⱼ") == (
        r"$\sum_{i\le t}$ $w_{i}$, $\prod_{j=i+1}^{t}$ $\gamma_{j}$"
    )
    assert prose("a2 (x·y)^2, a^b") == r"a2 (x$\cdot$y)${}^{2}$, a\^{}b"
    assert prose("Adam² x²₁ 10⁻⁶") == r"Adam${}^{2}$ $x^{2}{}_{1}$ 10${}^{-6}$"


def test_layers_are_formulas() -> None:
    assert r"$z_{2} = W_{2} \phi(x)$" in shown("layers") or r"\phi(x)$" in shown("layers")
    assert r"\delta_{" in shown("layers")
    assert "(forward pass)" in shown("layers")
    steps = [line for line in shown("layers").splitlines() if "layer: " in line]
    assert len(steps) > 3
    assert all(re.match(r"  \\item layer: \$.*\$ \(forward pass\)$", line) for line in steps)


@pytest.mark.parametrize("name", letters.NAMES)
@pytest.mark.parametrize("change", [str, str.capitalize])
def test_every_greek_name_has_its_letter(name: str, change: Any) -> None:
    one = change(name)
    assert len(letters.letter(one)) == 1
    assert not letters.letter(one).isascii()
    assert letters.tex(one).isascii()
    assert letters.letter(f"{one}2") == letters.letter(one) + "₂"
    assert letters.tex(f"{one}2") == letters.tex(one) + "_{2}"


def test_notebooks_are_ascii() -> None:
    assert all(latex_of(rule_of(name)).isascii() for name in NAMES)
