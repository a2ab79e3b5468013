"""The commands, put together."""

import inspect
import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Final

import typer

from mnemic.cli.ablate import ablate
from mnemic.cli.audit import audit
from mnemic.cli.bench import bench
from mnemic.cli.capacity import capacity, influence
from mnemic.cli.check import check
from mnemic.cli.compile import compile_
from mnemic.cli.derive import derive
from mnemic.cli.diff import diff
from mnemic.cli.doctor import doctor
from mnemic.cli.effects import effects, pareto
from mnemic.cli.eval import eval_
from mnemic.cli.export import export
from mnemic.cli.guard import guarded
from mnemic.cli.kernels import kernels
from mnemic.cli.leaderboard import leaderboard
from mnemic.cli.list import list_
from mnemic.cli.map import map_
from mnemic.cli.model import model
from mnemic.cli.new import new
from mnemic.cli.reproduce import reproduce
from mnemic.cli.schema import schema
from mnemic.cli.search import search
from mnemic.cli.serve import serve
from mnemic.cli.site import site
from mnemic.cli.tasks import tasks
from mnemic.cli.train import train
from mnemic.cli.tune import tune
from mnemic.cli.values import Command
from mnemic.cli.verify import verify
from mnemic.errors import UsageError

ABOUT = """A compiler for memory: from a short spec to a derived, checked, running layer.

A SPEC is a YAML file, or the name of a spec that comes with the package (mnemic list)."""

START = """\
A compiler for memory: from a short spec to a derived, checked, running layer.

What to try first:

  mnemic list                              the specs that come with it
  mnemic derive gated-deltanet --words     what one of them does, in words
  mnemic new my-rule                       a spec of your own, by answering
  mnemic check my-rule.yaml                what is wrong with it, if anything
  mnemic compile my-rule.yaml -o layer     its code, to read and to run
  mnemic train my-rule.yaml --task mqar    whether it learns to recall

Usage: mnemic COMMAND ...
mnemic --help lists all commands, and mnemic COMMAND --help tells of one.
mnemic --install-completion lets your shell complete commands and names.
mnemic doctor looks at what is installed on your machine."""

EXAMPLES: Final[dict[Callable[..., None], tuple[str, ...]]] = {
    new: (
        "mnemic new my-rule",
        "mnemic new my-rule --bias 'sqrt(1 + e**2) - 1' --decay channel --yes",
    ),
    check: ("mnemic check gated-deltanet", "mnemic check mine.yaml theirs.yaml --derive"),
    derive: (
        "mnemic derive gated-deltanet",
        "mnemic derive gated-deltanet --words",
        "mnemic derive mine.yaml --check",
    ),
    compile_: ("mnemic compile gated-deltanet -o layers/gated_deltanet",),
    diff: ("mnemic diff deltanet gated-deltanet",),
    map_: (
        "mnemic map",
        "mnemic map mine.yaml --near mine",
        "mnemic map --path deltanet titans-linear",
        "mnemic map -o map.svg",
    ),
    audit: ("mnemic audit", "mnemic audit miras", "mnemic audit deltanet --full --json"),
    reproduce: (
        "mnemic reproduce",
        "mnemic reproduce exact-swaps",
        "mnemic reproduce switching --seeds 5 -o switching.svg",
    ),
    capacity: ("mnemic capacity deltanet", "mnemic capacity titans --dim 16 -o titans.svg"),
    influence: (
        "mnemic influence gated-deltanet",
        "mnemic influence mine.yaml --text README.md --tokens 96 -o mine.svg",
    ),
    site: ("mnemic site -o site", "mnemic site gated-deltanet mine.yaml -o site"),
    list_: ("mnemic list", "mnemic list --class residual --paper Miras", "mnemic list --json"),
    schema: ("mnemic schema -o mnemic.schema.json",),
    tasks: ("mnemic tasks", "mnemic tasks swaps", "mnemic tasks recall --rung published --json"),
    model: (
        "mnemic model gated-deltanet --size 170M -o models/gdn",
        "mnemic model --layers 'gated-deltanet*3, softmax-attention' --size 340M -o models/hybrid",
        "mnemic model mine.yaml --blocks 4 --dim 256 --vocabulary 257 -o models/mine",
        "mnemic model --from checkpoints/gla-1.3B -o models/gla",
    ),
    train: (
        "mnemic train gated-deltanet --task mqar",
        "mnemic train gated-deltanet --task fuzzy-recall --rung tiny",
        "mnemic train mine.yaml --task mqar --task-option pairs=16 --task-option length=128",
        "mnemic train gated-deltanet --task mqar --resume",
        "mnemic train gated-deltanet --data books/ --tokenizer bpe:8000 --length 1024",
        "mnemic train models/gdn --data books.parquet --column body --optimizer muon",
    ),
    eval_: (
        "mnemic eval runs/gated-deltanet-books-0/model --data other-books/",
        "mnemic eval runs/gdn/model --data book.txt --length 4096 --picture gdn.png",
    ),
    serve: ("mnemic serve runs/gdn/model --port 8000",),
    export: ("mnemic export models/gdn", "mnemic export models/gdn --replace --json"),
    search: (
        "mnemic search examples/search/recall.yaml --preview",
        "mnemic search examples/search/recall.yaml --jobs 2 --confirm",
        "mnemic search mine.yaml --storage postgresql://me@host/trials",
        "mnemic search mine.yaml --storage postgresql://me@host/trials --launch slurm --workers 16",
    ),
    leaderboard: (
        "mnemic leaderboard examples/search/leaderboard.yaml -o docs/leaderboard.md",
        "mnemic leaderboard examples/search/leaderboard.yaml gated-deltanet deltanet",
        "mnemic leaderboard examples/search/leaderboard.yaml --block examples/search/block.yaml "
        "--seeds 3 --rates 1e-3,3e-3,1e-2 --run runs/one-block",
    ),
    ablate: (
        "mnemic ablate gated-deltanet --axes loss,rate",
        "mnemic ablate mine.yaml --space examples/search/leaderboard.yaml --block gla",
        "mnemic ablate titans --list",
    ),
    effects: (
        "mnemic effects examples/search/recall -o effects.md",
        "mnemic effects runs/one-block runs/gated-deltanet-ablation",
    ),
    pareto: ("mnemic pareto examples/search/leaderboard -o pareto.md",),
    bench: (
        "mnemic bench",
        "mnemic bench forms titans atlas",
        "mnemic bench decode gated-deltanet --json",
        "mnemic bench long -o long.json",
        "mnemic bench table benchmarks/results > docs/measured.md",
    ),
    kernels: (
        "mnemic kernels gated-deltanet --target sm_80",
        "mnemic kernels --target sm_90 -o benchmarks/kernels/sm_90.md --processes 2",
        "mnemic kernels gla --count",
        "mnemic kernels gla --width 128 --stalls",
    ),
    verify: ("mnemic verify gated-deltanet", "mnemic verify mine.yaml -o layers/mine"),
    tune: (
        "mnemic tune gated-deltanet --batch 8 --tokens 4096 --heads 32 --width 128",
        "mnemic tune mine.yaml -o layers/mine --for decode --batch 1",
    ),
    doctor: ("mnemic doctor",),
}

EXTRA: Final[dict[Callable[..., None], str]] = {
    **dict.fromkeys((search, leaderboard, ablate, effects, pareto), "search"),
    site: "docs",
    export: "onnx",
}
"""The extra that a command needs whole."""


_MARKUP: Final = re.compile(r"\[(?=[a-z#/@][^[]*?\])")
"""A bracket that rich would read as the beginning of markup, and leave out."""


def _unwrapped(command: Callable[..., None]) -> str:
    """Return a docstring with each paragraph on one line, for the terminal to wrap, in which
    brackets are brackets and no markup."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    whole = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return _MARKUP.sub(r"\[", whole)


app = typer.Typer(
    name="mnemic",
    help=ABOUT,
    epilog="\n\n".join(["Examples:", *(shown[0] for shown in EXAMPLES.values())]),
    invoke_without_command=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command, examples in EXAMPLES.items():
    name = command.__name__.removesuffix("_")
    shown = "\n\n".join(["Examples:", *examples])
    app.command(name, cls=Command, help=_unwrapped(command), epilog=shown)(
        guarded(command, EXTRA.get(command, ""))
    )


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mnemic {version('mnemic')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(START)
        raise typer.Exit(UsageError.exit_code)
