"""The model card of a folder: what the model is, how to use it, its rules, costs and checks."""

import re
from collections.abc import Sequence

from mnemic.compiler.explain.cost_hybrids import layer_cost
from mnemic.compiler.explain.render_markdown import to_markdown
from mnemic.compiler.rule import Rule
from mnemic.hf.build import specs_of
from mnemic.hf.checks import Check
from mnemic.hf.modeling_mnemic import MnemicForCausalLM
from mnemic.pipeline import derive

CARD = """---
library_name: transformers
pipeline_tag: text-generation
tags: [mnemic, {tags}]
---

# {title}

A language model of {blocks} blocks of {dim} channels, each a memory layer and a feed-forward:
{layers}. {parameters:,} parameters, {embedded:,} of them in the embedding; {state}.
Written by mnemic from {specs}.

```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("THIS FOLDER", trust_remote_code=True)
```

With mnemic installed, `import mnemic.hf` in place of `trust_remote_code=True`.
{trained}
## Checks

{checks}

## Costs

Of each memory in one block, all heads together, at {length:,} tokens and two bytes a number.
Products count two operations; training is the forward pass.

{costs}

{rules}"""

UNTRAINED = "\nIts parameters are as they were drawn: it has seen no text.\n"

CONVERTED = "\nIts parameters are those of {folder}, in the layout of flash-linear-attention.\n"


def card(model: MnemicForCausalLM, checks: Sequence[Check], trained: str = UNTRAINED) -> str:
    """Return the text of the folder's README.md; ``trained`` says what the model has learned."""
    config = model.config
    rules = {name: derive(spec) for name, spec in specs_of(config).items()}
    embedding = model.get_input_embeddings().weight
    return CARD.format(
        tags=", ".join(rules),
        title=" and ".join(f"{spec.title or name}" for name, spec in specs_of(config).items()),
        blocks=config.num_hidden_layers,
        dim=config.hidden_size,
        layers=_layers(config.layers),
        parameters=sum(p.numel() for p in model.parameters()),
        embedded=embedding.numel(),
        state=_head(config.tie_word_embeddings),
        specs=", ".join(f"`{name}`" for name in rules),
        trained=trained,
        checks=_checks(checks),
        length=config.max_position_embeddings,
        costs=_costs(model, rules),
        rules="\n".join(_lower(to_markdown(rule)) for rule in rules.values()),
    )


def _layers(names: Sequence[str]) -> str:
    """Join names, runs of equal ones as one: ``3 × gated-deltanet, softmax-attention``."""
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return ", ".join(f"{count} × `{name}`" if count > 1 else f"`{name}`" for name, count in runs)


def _head(tied: bool) -> str:
    return "the head is the embedding's transpose" if tied else "the head has its own"


def _checks(checks: Sequence[Check]) -> str:
    if not checks:
        return "None were run when this folder was written."
    rows = [
        f"| {check.name} | {check.error:.1e} | {'passed' if check.passed else 'FAILED'} |"
        for check in checks
    ]
    told = (
        "In float64, on one block of each memory at these widths; the largest difference, relative "
        f"to the largest number, may be {checks[0].bound:.0e}."
    )
    return "\n".join([told, "", "| equal | difference | |", "| --- | --- | --- |", *rows])


def _costs(model: MnemicForCausalLM, rules: dict[str, Rule]) -> str:
    head = "| memory | heads | numbers of state | FLOPs a token, training | decoding |"
    rows = [head, "| --- | --- | --- | --- | --- |"]
    for name, rule in rules.items():
        layer = model.model.layers[model.config.layers.index(name)].memory
        sizes = getattr(layer, "memory", layer).sizes  # a hybrid has its memory inside
        found = layer_cost(rule).evaluate(
            d_k=sizes.key_dim, d_v=sizes.value_dim, T=model.config.max_position_embeddings
        )
        told = [found[x] * sizes.heads for x in ("state", "train_flops", "decode_flops")]
        rows.append(f"| {name} | {sizes.heads} | " + " | ".join(f"{x:,.0f}" for x in told) + " |")
    return "\n".join(rows)


def _lower(text: str) -> str:
    """Return Markdown with every heading one level down."""
    return re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE)
