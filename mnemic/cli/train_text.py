"""``mnemic train --data``: a language model on text."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnemic.cli.model import require, shaped
from mnemic.cli.output import echo, print_json
from mnemic.cli.train_progress import shown
from mnemic.errors import UsageError
from mnemic.models.progress import Silent

if TYPE_CHECKING:
    from mnemic.hf.modeling_mnemic import MnemicForCausalLM
    from mnemic.hf.train import Existing, Outcome

DIM, BLOCKS = 256, 4
"""Of a model whose shape is not told."""


def train_text(
    source: str,
    data: Path,
    held_out: Path | None,
    column: str,
    tokenizer: str | None,
    size: str | None,
    shape: dict[str, int | None],
    options: dict[str, Any],
    run: Path | None,
    existing: "Existing",
    as_json: bool,
) -> None:
    """Train a spec's or a folder's model on text, and tell what came out."""
    require()
    from mnemic.hf.folder import is_model
    from mnemic.hf.from_fla import tokenizer_files
    from mnemic.hf.text_options import TextOptions
    from mnemic.hf.texts import read_texts
    from mnemic.hf.tokenizer import get_tokenizer, load_tokenizer
    from mnemic.hf.train import train

    if options["time_limit"] == 0:
        options = {**options, "time_limit": None}
    told = TextOptions(**{name: x for name, x in options.items() if x is not None})
    place = Path(source)
    saved = is_model(place)
    texts = read_texts(data, column, held_out)
    if tokenizer is None and saved and tokenizer_files(place):
        tokens = load_tokenizer(place)
    else:
        tokens = get_tokenizer(tokenizer or "bytes", texts.train)
    if saved:
        model = _loaded(place, tokens, size, shape)
    else:
        model = _made(source, tokens, size, shape, told.length, told.seed)
    name = place.name if saved else model.config.layers[0]
    folder = run or Path("runs") / f"{name}-{data.stem or data.name}-{told.seed}"
    if os.environ.get("RANK", "0") != "0":  # one of several processes, of which the first tells
        train(model, tokens, texts, told, folder, Silent(), existing)
        return
    speed = told.tokens * int(os.environ.get("WORLD_SIZE", "1"))
    with shown(f"{name} on {data}", "bits per byte", speed) as progress:
        outcome = train(model, tokens, texts, told, folder, progress, existing)
    _tell(outcome, folder, as_json)


def _loaded(
    place: Path, tokens: Any, size: str | None, shape: dict[str, int | None]
) -> "MnemicForCausalLM":
    """Load a model, whose generated texts will end as the documents that it sees do."""
    from mnemic.hf.folder import load

    if size or any(shape.values()):
        raise UsageError(
            f"{place}: a saved model keeps its shape; leave out --size, --dim, --layers, ..."
        )
    model = load(place)
    if (needed := len(tokens)) > (known := model.config.vocab_size):
        raise UsageError(
            f"{place}: the model has {known:,} tokens, the tokenizer {needed:,}: give --tokenizer "
            f"one with no more, or make the model with --vocabulary {needed}"
        )
    for config in (model.config, model.generation_config):
        ends = config.eos_token_id
        if tokens.eos_token_id not in (ends if isinstance(ends, list) else [ends]):
            config.eos_token_id = tokens.eos_token_id
        if config.pad_token_id is None:
            config.pad_token_id = tokens.pad_token_id
    return model


def _made(
    source: str, tokens: Any, size: str | None, shape: dict[str, int | None], length: int, seed: int
) -> "MnemicForCausalLM":  # fmt: skip
    from mnemic.hf.build import make_config, make_model

    given = {name: x for name, x in shape.items() if x is not None}
    if size is None:
        given = {"dim": DIM, "blocks": BLOCKS, **given}
    told = {"vocabulary": len(tokens), "length": length}
    config = make_config([source], shaped(size, {**given, **told}))
    config.eos_token_id = config.pad_token_id = tokens.eos_token_id
    return make_model(config, seed)


def _tell(outcome: "Outcome", folder: Path, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(outcome), "run": str(folder)})
        return
    reasons = {"time": "the time is over", "steps": "all steps"}
    echo(
        f"{outcome.bits:.4g} bits a byte (8 by guessing) after {outcome.steps} steps: "
        f"{reasons[outcome.stopped]}"
    )
    echo(f"{outcome.parameters:,} parameters; model, curve and checkpoints in {folder}")
