"""``mnemic model``: specs as a language model that transformers loads."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic.cli.arguments import AsJson, complete_name
from mnemic.cli.output import echo, print_json
from mnemic.errors import EnvironmentFailed, UsageError

if TYPE_CHECKING:
    from mnemic.hf.shape import Shape

Spec = Annotated[
    str | None,
    typer.Argument(
        metavar="[SPEC]",
        help="A YAML file, or a packaged spec's name.",
        autocompletion=complete_name,
    ),
]
Output = Annotated[Path, typer.Option("-o", "--output", help="The folder.", metavar="DIR")]
Layers = Annotated[
    str | None,
    typer.Option(
        "--layers",
        metavar="PATTERN",
        help="In place of SPEC, several in turn: 'gated-deltanet*3, softmax-attention'.",
    ),
]
SizeName = Annotated[
    str | None, typer.Option("--size", help="Of the papers: 170M, 340M, 760M or 1.3B.")
]
Blocks = Annotated[int | None, typer.Option(help="Blocks, in place of the size's.")]
Dim = Annotated[int | None, typer.Option(help="Channels of the stream.")]
Heads = Annotated[int | None, typer.Option(help="Heads of memories whose spec does not say.")]
Hidden = Annotated[int | None, typer.Option(help="Hidden units of the feed-forwards.")]
Vocabulary = Annotated[int, typer.Option(help="Tokens.")]
Tied = Annotated[bool, typer.Option("--tied/--untied", help="Whether embedding and head are one.")]
Length = Annotated[int, typer.Option(help="Tokens that the model is meant for.")]
Init = Annotated[
    float | None,
    typer.Option(help="Standard deviation of initial maps.", show_default="1/sqrt(inputs)"),
]
Seed = Annotated[int, typer.Option(help="Of the initial parameters.")]
Checked = Annotated[bool, typer.Option("--check/--no-check", help="Whether to check it first.")]
Replace = Annotated[bool, typer.Option("--replace", help="Write over a model that is there.")]


def model(
    output: Output,
    spec: Spec = None,
    layers: Layers = None,
    size: SizeName = None,
    blocks: Blocks = None,
    dim: Dim = None,
    heads: Heads = None,
    hidden: Hidden = None,
    vocabulary: Vocabulary = 32_000,
    tied: Tied = True,
    length: Length = 4096,
    init: Init = None,
    seed: Seed = 0,
    check: Checked = True,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Write a language model of a spec's layers, as drawn, that transformers loads and trains.

    The folder has configuration, weights (safetensors), code, and a card with the derived rule, its
    costs and what was checked: with a cache as without, padded as alone, packed as alone, chunk by
    chunk as token by token. It is written whole or not at all.

    JSON: {"folder", "layers", "parameters", "checks": [{"name", "error", "bound", "passed"}, ...]}.
    """
    require()
    from mnemic.hf import build, checks, folder
    from mnemic.hf.pattern import sources

    if (spec is None) == (layers is None):
        raise UsageError("one of SPEC and --layers is needed")
    told = {"heads": heads, "hidden": hidden, "vocabulary": vocabulary, "tied": tied,
            "length": length, "init": init}  # fmt: skip
    shape = shaped(size, {"blocks": blocks, "dim": dim, **told})
    folder.refuse_foreign(output.expanduser(), replace=replace)
    config = build.make_config(sources(layers) if layers else [str(spec)], shape)
    made = build.make_model(config, seed)
    found = checks.run_checks(config) if check else ()
    place = folder.save(made, output, found, replace=replace)
    count = sum(p.numel() for p in made.parameters())
    if as_json:
        listed = [{"name": c.name, "error": c.error, "bound": c.bound, "passed": c.passed}
                  for c in found]  # fmt: skip
        print_json({"folder": str(place), "layers": config.layers, "parameters": count,
                    "checks": listed})  # fmt: skip
        return
    echo(f"{place}: {count:,} parameters in {config.num_hidden_layers} blocks of {shape.dim}")
    for c in found:
        echo(f"  {c.name}: {c.error:.1e}")


def shaped(size: str | None, told: dict[str, Any]) -> "Shape":
    """Return the shape of a named size with what else is told.

    Raises:
        UsageError: no size, and not both of blocks and dim.
    """
    from mnemic.hf.shape import Shape, named_size

    given = {name: x for name, x in told.items() if x is not None}
    if size is not None:
        known = named_size(size)
        given = {"blocks": known.blocks, "dim": known.dim, "heads": known.heads, **given}
    if missing := [f"--{name}" for name in ("blocks", "dim") if name not in given]:
        raise UsageError(f"{' and '.join(missing)} needed where there is no --size")
    return Shape(**given)


def require() -> None:
    """Make sure that transformers is there, and keep it from the network's timeouts.

    Raises:
        EnvironmentFailed: it is not.
    """
    try:
        import transformers
    except ImportError as error:
        raise EnvironmentFailed(f"{error.name} is needed: pip install 'mnemic[hf]'") from None
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
