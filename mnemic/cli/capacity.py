"""``mnemic capacity`` and ``mnemic influence``: what a memory holds, and what it forgets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mnemic import pipeline
from mnemic.cli.arguments import AsJson, SpecArgument
from mnemic.cli.drawing import PICTURE, Drawing, write_drawing
from mnemic.cli.output import echo, print_json
from mnemic.cli.pages import demand_ending
from mnemic.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from mnemic.capacity import Held, Influence, Spectrum

Dim = Annotated[int, typer.Option("--dim", min=2, max=256, help="Channels of the one head.")]
Pairs = Annotated[int, typer.Option("--pairs", min=2, max=65536, help="The most pairs to try.")]
Draws = Annotated[int, typer.Option("--draws", min=1, help="Draws to take the mean over.")]
Tokens = Annotated[int, typer.Option("--tokens", min=2, max=512, help="Tokens of the text.")]
Text = Annotated[
    Path | None,
    typer.Option("--text", metavar="FILE", help="Read this text; otherwise noise.",
                 show_default=False),
]  # fmt: skip
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of inputs and projections.")]


def capacity(
    spec: SpecArgument, dim: Dim = 32, pairs: Pairs = 256, draws: Draws = 4, out: Drawing = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Measure how many pairs a memory holds, as an untrained layer's coefficients leave it.

    Random keys and values are written, and the memory is asked for all of them after 2, 3, 4, 6,
    8, 11, ... pairs, √2 times as many each time. Held is the largest number tried before less than
    95 % of the pairs are recalled: their own value the nearest of all. Beside the error stands a
    formula where the kernel admits one, and the least error of any memory that is linear in so many
    features.

    JSON: {"spec", "dim", "pairs", "recalled", "errors", "predicted", "bound", "features", "draws",
    "held", "all_held"}.
    """
    from mnemic.capacity import held
    from mnemic.capacity.drawing import of_pairs

    demand_ending(out, PICTURE)
    found = held(pipeline.compile(spec), dim, pairs, draws)
    if out is not None:
        write_drawing(out, of_pairs(found))
    if as_json:
        print_json(found.to_json())
    else:
        _tell(found)


def influence(
    spec: SpecArgument, tokens: Tokens = 48, dim: Dim = 8, text: Text = None, seed: Seed = 0,
    out: Drawing = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Measure what is left of each token in later read-outs, and how a token's step acts.

    The size of ∂y_t/∂v_i comes from autograd of the compiled rule, as an untrained layer calls it
    over the text; beside it stands the decay of the derivation, Π α. The eigenvalues are those of
    ∂state_t/∂state_{t−1} at some tokens, of the whole state: momentum and layers included.

    JSON: {"spec", "measured": [t][i], "decay", "by_age": {"measured", "decay"}, "spectrum":
    {"tokens", "radii", "least", "values"} or null, "spectrum_refused": reason or null}.
    """
    from mnemic.capacity import influence as measure
    from mnemic.capacity.drawing import of_influence

    demand_ending(out, PICTURE)
    compiled = pipeline.compile(spec)
    x = _inputs(text, tokens, dim, seed)
    found = measure(compiled, x, seed)
    seen, refused = _spectrum(compiled, x, seed)
    if out is not None:
        write_drawing(out, of_influence(found, seen))
    if as_json:
        told = {"spectrum": seen and seen.to_json(), "spectrum_refused": refused}
        print_json(found.to_json() | told)
    else:
        _tell_influence(found, seen, refused)


def _tell(found: "Held") -> None:
    echo(f"{found.spec}: holds {found.held_in_words} pairs in {found.dim} channels "
         f"({found.draws} draws)")  # fmt: skip
    if found.features is not None:
        echo(f"linear in {found.features} features")
    head = ("pairs", "recalled", "error", "by the kernel", "linear bound")
    rows: list[tuple[str, ...]] = [head]
    for i, count in enumerate(found.pairs):
        formulas = [("" if own is None else f"{own[i]:.3f}")
                    for own in (found.predicted, found.bound)]  # fmt: skip
        rows.append((str(count), f"{found.recalled[i]:.3f}", f"{found.errors[i]:.3f}", *formulas))
    for row in rows:
        echo("  ".join(f"{cell:>13}" for cell in row).rstrip())


def _tell_influence(
    found: "Influence", spectrum: "Spectrum | None", refused: str | None
) -> None:  # fmt: skip
    measured, decay = found.by_age()
    echo(f"{found.spec}: influence of a token by age, of that on its own read-out")
    ages = [age for age in (1, 2, 4, 8, 16, 32, 64, 128, 256) if age < len(measured)]
    for age in ages:
        derived = "" if decay is None else f", derived decay {decay[age]:.3f}"
        echo(f"  {age:>4} tokens: {measured[age]:.3f}{derived}")
    if spectrum is None:
        echo(f"no eigenvalues: {refused}")
        return
    radii = spectrum.radii()
    echo(f"eigenvalues of a token's step: largest size {min(radii):.4f} to {max(radii):.4f} over "
         f"{len(radii)} tokens, smallest real part {spectrum.least:.4f}")  # fmt: skip


def _spectrum(
    compiled: pipeline.Compiled, x: "Tensor", seed: int
) -> "tuple[Spectrum | None, str | None]":
    from mnemic.capacity import spectrum

    try:
        return spectrum(compiled, x, seed=seed), None
    except UsageError as refused:
        return None, str(refused)


def _inputs(text: Path | None, tokens: int, dim: int, seed: int) -> "Tensor":
    """Return inputs [1, T, dim] in float64: random embeddings of the text's bytes, or noise."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    if text is None:
        return torch.randn(1, tokens, dim, generator=rng, dtype=torch.float64)
    try:
        data = text.read_bytes()[:tokens]
    except OSError as error:
        raise UsageError(f"cannot read {text}: {error.strerror}") from error
    if len(data) < 2:
        raise UsageError(f"{text}: read {len(data)} bytes, needed at least 2")
    table = torch.randn(256, dim, generator=rng, dtype=torch.float64)
    return table[torch.tensor(list(data))][None]
