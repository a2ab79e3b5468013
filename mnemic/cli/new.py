"""``mnemic new``: a first spec of one's own, with comments, from answers or options."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mnemic.cli.arguments import AsJson
from mnemic.cli.output import echo, print_json
from mnemic.dsl.draft import STARTS, Question, draft, questions, refused
from mnemic.dsl.load import load
from mnemic.dsl.reading import read_yaml
from mnemic.dsl.writing import short
from mnemic.errors import UsageError
from mnemic.models.files import replacing

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the spec: small letters, hyphens.")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", show_default="NAME.yaml", help="The file."),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Ask nothing: use defaults for options not given.")
]


def _option(place: str, about: str) -> Any:
    """Make an option that answers a question, with its words for the shell's completion."""

    def words(incomplete: str) -> list[str]:
        (question,) = (q for q in questions() if q.place == place)
        return [word for word in question.answers if word.startswith(incomplete)]

    return typer.Option(
        f"--{place.rpartition('.')[2]}", metavar="ANSWER", help=about, autocompletion=words,
        show_default=STARTS[place],
    )  # fmt: skip


Features = Annotated[str | None, _option("features", "What keys and queries are turned into.")]
Memory = Annotated[str | None, _option("memory", "The memory as a function.")]
Bias = Annotated[
    str | None, _option("bias", "The inner loss: a word, or an expression in e, y and v.")
]
Local = Annotated[
    str | None, _option("retention.local", "What a step pays for leaving the last memory.")
]
Decay = Annotated[str | None, _option("retention.decay", "What a token leaves of the memory.")]
Order = Annotated[
    str | None, _option("retention.order", "Whether it forgets before or after it learns.")
]
Method = Annotated[str | None, _option("optimizer.method", "How the problem is solved.")]
Rate = Annotated[str | None, _option("optimizer.rate", "The size of a step.")]
Momentum = Annotated[
    str | None, _option("optimizer.momentum", "What is left of the averaged gradient.")
]
Window = Annotated[str | None, _option("window", "Tokens whose losses a step takes.")]
Weights = Annotated[str | None, _option("weights", "What each pair's loss counts.")]


def new(
    name: Name,
    output: Output = None,
    features: Features = None,
    memory: Memory = None,
    bias: Bias = None,
    local: Local = None,
    decay: Decay = None,
    order: Order = None,
    method: Method = None,
    rate: Rate = None,
    momentum: Momentum = None,
    window: Window = None,
    weights: Weights = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Write a first spec, with a comment on every line and all that could stand there instead.

    On a terminal each axis that no option tells is asked for; Enter takes what is proposed. With
    --yes, --json or without a terminal nothing is asked. A file that exists is not replaced, and
    nothing is written of answers that do not go together.

    JSON: {"name", "file", "spec"}: the spec in its short form.
    """
    path = output or Path(f"{name}.yaml")
    _refuse_existing(path)
    told = {
        "features": features, "memory": memory, "bias": bias, "retention.local": local,
        "retention.decay": decay, "retention.order": order, "optimizer.method": method,
        "optimizer.rate": rate, "optimizer.momentum": momentum, "window": window,
        "weights": weights,
    }  # fmt: skip
    answers = {place: answer for place, answer in told.items() if answer is not None}
    if not (yes or as_json) and sys.stdin.isatty():
        answers = _ask_missing(answers)
    text = draft(name, answers)
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"name": name, "file": str(path),
                    "spec": short(load(read_yaml(text, name).data))})  # fmt: skip
    else:
        _show(path)


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise UsageError(f"{path}: is there already; name another file with -o")


def _ask_missing(told: dict[str, str]) -> dict[str, str]:
    """Return the answers that were told, and those that are given now."""
    answers: dict[str, str] = {}
    for question in questions():
        given = told.get(question.place)
        answers[question.place] = _ask(question, answers) if given is None else given
    return answers


def _ask(question: Question, before: dict[str, str]) -> str:
    """Ask until the answer is one that may stand at its place; return it."""
    typer.echo(f"\n{question.place}: {question.about}", err=True)
    for word, meaning in question.answers.items():
        typer.echo(f"  {word:<13} {meaning}".rstrip(), err=True)
    if question.beside:
        typer.echo(f"  or {question.beside}", err=True)
    while True:
        answer: str = typer.prompt(question.place, default=question.proposed, err=True)
        wrong = refused(question, answer, before)
        if wrong is None:
            return answer
        typer.echo(wrong, err=True)


def _show(path: Path) -> None:
    echo(f"wrote {path}; what next:")
    echo(f"  mnemic derive {path} --words        what it does, in words")
    echo(f"  mnemic compile {path} -o layer      its code, to read and to run")
    echo(f"  mnemic train {path} --task mqar     whether it learns to recall")
