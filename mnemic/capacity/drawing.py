"""Pictures of what a memory holds, forgets and does to its state."""

import io
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from mnemic.capacity.forgetting import Influence
from mnemic.capacity.pairs import Held
from mnemic.capacity.transition import Spectrum

matplotlib.rcParams |= {"svg.hashsalt": "mnemic", "svg.fonttype": "none"}


def of_pairs(found: Held) -> str:
    """Return recall and error by the number of pairs as SVG."""
    figure, (left, right) = _figure(2)
    left.plot(found.pairs, found.recalled, "o-", label="measured")
    left.axhline(0.95, color="0.6", lw=0.8, ls=":")
    right.plot(found.pairs, found.errors, "o-", label="measured")
    for label, values in (("by the kernel", found.predicted), ("linear bound", found.bound)):
        if values is not None:
            right.plot(found.pairs, values, "--", label=label)
    for axes, what in ((left, "pairs recalled"), (right, "error")):
        axes.set(xscale="log", xlabel="pairs", ylabel=what, ylim=(-0.02, 1.05))
        axes.legend(frameon=False)
    figure.suptitle(f"{found.spec}, {found.dim} channels")
    return _svg(figure)


def of_influence(found: Influence, spectrum: Spectrum | None) -> str:
    """Return the heat map of influence, its mean by age beside the decay, and eigenvalues."""
    figure, (left, middle, right) = _figure(3)
    image = left.imshow(found.measured, cmap="viridis", origin="upper", aspect="auto")
    left.set(xlabel="token i", ylabel="read-out t", title="size of ∂y_t/∂v_i")
    figure.colorbar(image, ax=left)
    measured, decay = found.by_age()
    middle.plot(measured, label="measured")
    if decay is not None:
        middle.plot(decay, "--", label="Π α, derived")
    middle.set(xlabel="age t − i", ylabel="of age 0", title="influence by age")
    middle.legend(frameon=False)
    if spectrum is None:
        right.set_axis_off()
    else:
        points = [z for own in spectrum.values for z in own]
        right.scatter([z[0] for z in points], [z[1] for z in points], s=6, alpha=0.5)
        right.set(xlabel="real", ylabel="imaginary", title="eigenvalues of one token's step")
    figure.suptitle(found.spec)
    return _svg(figure)


def _figure(count: int) -> tuple[Figure, Any]:
    figure = Figure(figsize=(4.2 * count, 3.6), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.subplots(1, count)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
