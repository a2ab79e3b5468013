"""Draw the picture of the README: a spec, the rule it derives to, its code, and its curve.

    python scripts/picture.py        # writes docs/images/spec.svg

Everything in it is read off: the spec from its file, the rule and the code from the compiler, the
curve from `benchmarks/results/curves.json`, which `mnemic bench curves` writes. Only lines between
those that are shown are left out, where dots stand.
"""

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from mnemic.cli.check import flow
from mnemic.compiler.explain.render import equations
from mnemic.dsl.load import load
from mnemic.dsl.writing import short
from mnemic.pipeline import derive, files

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/images/spec.svg"
CURVES = ROOT / "benchmarks/results/curves.json"
SPEC, BESIDE = "huber-coordinate", "transformer"
AXES = ("mnemic", "name", "bias", "retention", "optimizer")
CHUNK = (
    "base =", "start =", "", "e = error", "u =", "A_kept =", "W_next =", "y_new =", "y =",
)  # fmt: skip
"""How the lines of the chunk form begin that are shown; an empty one is for those left out."""

WIDTH, HEIGHT, GAP, PAD, LINE = 880, 476, 16, 16, 20
STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
  white-space: pre; fill: #1f2328; }
.title { font: 600 14px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif;
  fill: #0550ae; }
.small { font-size: 12px; fill: #59636e; }
.end { text-anchor: end; }
.panel { fill: #f6f8fa; stroke: #d1d9e0; }
.axis { stroke: #d1d9e0; }
.ours { stroke: #0550ae; } .other { stroke: #9a6700; }
.ours, .other { fill: none; stroke-width: 2.5; }
text.ours { fill: #0550ae; } text.other { fill: #9a6700; }
text.ours, text.other { stroke: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .title { fill: #79c0ff; } .small { fill: #9ea7b3; }
  .panel { fill: #151b23; stroke: #3d444d; } .axis { stroke: #3d444d; }
  .ours { stroke: #79c0ff; } .other { stroke: #e3b341; }
  text.ours { fill: #79c0ff; } text.other { fill: #e3b341; }
}
"""


def spec_lines() -> list[str]:
    """Return the axes of the spec as its file could have them, one a line."""
    said = short(load(SPEC))
    return [f"{axis}: {flow(said[axis])}" for axis in AXES if axis in said]


def rule_lines() -> list[str]:
    """Return the equations that are derived."""
    return [f"({line.number}) {line.text}" for line in equations(derive(SPEC))]


def code_lines() -> list[str]:
    """Return the loop over chunks, and the error signal of the kernel."""
    written = files(SPEC)
    (module,) = (text for name, text in written.items() if name == f"{SPEC.replace('-', '_')}.py")
    lines = [line.strip() for line in module.partition("# chunk by chunk")[2].splitlines()]
    loop = ["# chunk by chunk, PyTorch"]
    for start in CHUNK:
        loop.append(next(x for x in lines if x.startswith(start)) if start else "...")
    kernel = written["kernels.py"].splitlines()
    first = kernel.index("def error(e, delta):")
    body = [line for line in kernel[first : first + 3] if '"""' not in line]
    return [*loop, "# in the fused kernel, Triton", *body]


def draw() -> str:
    """Return the picture as SVG."""
    left, low = 312, 5 * LINE + 3 * PAD + 4
    right = WIDTH - left - GAP
    code, curve = 500, WIDTH - 500 - GAP
    tall = HEIGHT - low - GAP
    parts = [
        _panel(0, 0, left, low, "1 · a spec", spec_lines()),
        _panel(left + GAP, 0, right, low, "2 · the rule that follows", rule_lines()),
        _panel(0, low + GAP, code, tall, "3 · the code that is written", code_lines()),
        _panel(code + GAP, low + GAP, curve, tall, "4 · how it learns", ()),
        *_curves(code + GAP, low + GAP, curve, tall),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 {WIDTH + 2} {HEIGHT + 2}"'
        f' width="{WIDTH}" height="{HEIGHT}" role="img">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def _panel(x: int, y: int, width: int, height: int, title: str, lines: Iterable[str]) -> str:
    rows = [
        f'<rect class="panel" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>',
        _text(x + PAD, y + PAD + 10, title, "title"),
    ]
    for i, line in enumerate(lines):
        rows.append(_text(x + PAD, y + 2 * PAD + 18 + i * LINE, line))
    return "\n".join(rows)


def _text(x: float, y: float, text: str, style: str = "") -> str:
    mark = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}"{mark} xml:space="preserve">{escape(text)}</text>'


def _curves(x: int, y: int, width: int, height: int) -> list[str]:
    """Held-out bits a byte over training steps, of the spec and of a transformer."""
    results = json.loads(CURVES.read_text(encoding="utf-8"))["results"]
    found = {name: results[f"{name} seed 0"] for name in (SPEC, BESIDE)}
    most, bottom, top = found[SPEC]["steps"][-1], 2.5, 5.0
    inner = (x + 44, y + 60, x + width - PAD, y + height - 62)

    def at(step: float, bits: float) -> tuple[float, float]:
        across = inner[0] + (inner[2] - inner[0]) * step / most
        return across, inner[3] - (inner[3] - inner[1]) * (bits - bottom) / (top - bottom)

    rows = [_text(x + PAD, y + 2 * PAD + 14, "held-out bits a byte", "small")]
    for bits in (3, 4, 5):
        low, high = at(0, bits), at(most, bits)
        rows.append(_path((low, high), "axis"))
        rows.append(_text(low[0] - 8, low[1] + 4, str(bits), "small end"))
    for step in (0, most // 2, most):
        rows.append(_text(at(step, bottom)[0] + 4, inner[3] + 16, str(step), "small end"))
    rows.append(_text(at(most / 4, bottom)[0], inner[3] + 16, "steps", "small end"))
    for (name, result), style in zip(found.items(), ("ours", "other"), strict=True):
        pairs = [p for p in zip(result["steps"], result["bits"], strict=True) if p[1] <= top]
        rows.append(_path([at(*pair) for pair in pairs], style))
        last = at(*pairs[-1])
        below = 22 if style == "ours" else -44
        rows.append(_text(last[0], last[1] + below, f"{name} {pairs[-1][1]:.2f}", f"{style} end"))
    millions = " and ".join(sorted({f"{r['parameters'] / 1e6:.2f}" for r in found.values()}))
    for i, line in enumerate(
        (f"{millions} M parameters each, one seed,", "Python's library, on a CPU")
    ):
        rows.append(_text(x + PAD, inner[3] + 38 + 16 * i, line, "small"))
    return rows


def _path(points: Sequence[tuple[float, float]], style: str) -> str:
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{style}" points="{line}"/>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
