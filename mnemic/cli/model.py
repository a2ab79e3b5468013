"""``mnemic model``: specs as a language model that transformers loads."""

from collections.abc import Mapping
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
        metavar="SPEC",
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
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FOLDER",
        help="In place of SPEC and sizes, a checkpoint in the layout of flash-linear-attention.",
    ),
]
SizeName = Annotated[
    str | None, typer.Option("--size", help="A size from the papers: 170M, 340M, 760M or 1.3B.")
]
Blocks = Annotated[int | None, typer.Option(help="Blocks, in place of the size's.")]
Dim = Annotated[int | None, typer.Option(help="Channels of the stream.")]
Heads = Annotated[int | None, typer.Option(help="Heads of memories whose spec does not say.")]
Hidden = Annotated[int | None, typer.Option(help="Hidden units of the feed-forwards.")]
Vocabulary = Annotated[int | None, typer.Option(help="Tokens.", show_default="32000")]
Tied = Annotated[
    bool | None,
    typer.Option(
        "--tied/--untied", help="Whether embedding and head are one.", show_default="tied"
    ),
]
Length = Annotated[
    int | None, typer.Option(help="Tokens that the model is meant for.", show_default="4096")
]
Init = Annotated[
    float | None,
    typer.Option(help="Standard deviation of initial maps.", show_default="1/sqrt(inputs)"),
]
Seed = Annotated[int, typer.Option(help="Seed of the initial parameters.")]
Checked = Annotated[
    bool, typer.Option("--check/--no-check", help="Whether to check the model first.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Write over a model that is there.")]


def model(
    output: Output,
    spec: Spec = None,
    layers: Layers = None,
    checkpoint: From = None,
    size: SizeName = None,
    blocks: Blocks = None,
    dim: Dim = None,
    heads: Heads = None,
    hidden: Hidden = None,
    vocabulary: Vocabulary = None,
    tied: Tied = None,
    length: Length = None,
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

    With --from the weights, the sizes and the tokenizer are a checkpoint's: of DeltaNet, Gated
    DeltaNet, GLA or RetNet, as flash-linear-attention saves them.

    JSON: {"folder", "layers", "parameters", "checks": [{"name", "error", "bound", "passed"}, ...]}.
    """
    require()
    from mnemic.hf import build, card, checks, folder, from_fla
    from mnemic.hf.pattern import sources

    _demand_one({"SPEC": spec, "--layers": layers, "--from": checkpoint})
    folder.refuse_foreign(output.expanduser(), replace=replace)
    told = {"blocks": blocks, "dim": dim, "heads": heads, "hidden": hidden, "init": init,
            "vocabulary": vocabulary, "tied": tied, "length": length}  # fmt: skip
    trained, tokenizer = card.UNTRAINED, []
    if checkpoint is None:
        pattern = sources(layers) if layers else [str(spec)]
        made = build.make_model(build.make_config(pattern, shaped(size, told)), seed)
    else:
        if given := [f"--{name}" for name, x in {"size": size, **told}.items() if x is not None]:
            raise UsageError(f"--from has its own sizes: leave out {', '.join(given)}")
        made, tokenizer = from_fla.read_checkpoint(checkpoint), from_fla.tokenizer_files(checkpoint)
        trained = card.CONVERTED.format(folder=checkpoint.resolve().name)
    config = made.config
    found = checks.run_checks(config) if check else ()
    place = folder.save(made, output, found, trained=trained, also=tokenizer, replace=replace)
    count = sum(p.numel() for p in made.parameters())
    if as_json:
        listed = [{"name": c.name, "error": c.error, "bound": c.bound, "passed": c.passed}
                  for c in found]  # fmt: skip
        print_json({"folder": str(place), "layers": config.layers, "parameters": count,
                    "checks": listed})  # fmt: skip
        return
    number = config.num_hidden_layers
    sizes = f"{number} block{'s' if number > 1 else ''} of {config.hidden_size} channels"
    echo(f"{place}: {count:,} parameters in {sizes}")
    for c in found:
        echo(f"  {c.name}: {c.error:.1e}")


def _demand_one(sources: Mapping[str, Any]) -> None:
    """Raise UsageError unless exactly one of what a model is made of is given."""
    given = [name for name, source in sources.items() if source is not None]
    if not given:
        raise UsageError("one of SPEC, --layers and --from is needed")
    if str(sources["--layers"]).isdecimal():
        count = sources["--layers"]
        raise UsageError(
            f"--layers: read '{count}', allowed: specs in turn, 'gated-deltanet*3, "
            f"softmax-attention'; a number of blocks is --blocks {count}"
        )
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: give one of them")


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
