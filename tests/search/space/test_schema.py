"""The JSON Schema of spaces allows what the loader reads, and little else."""

from pathlib import Path

import jsonschema
import pytest

from mnemic.dsl.reading import read_file
from mnemic.search.space.schema import schema
from mnemic.search.space.space import load_space

FOLDER = Path(__file__).parents[3] / "examples" / "search"
EXAMPLES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "block.yaml")
"""The spaces; the block for all is a spec without a search."""
VALIDATOR = jsonschema.Draft202012Validator(schema())
SEARCH = {"tasks": {"mqar": "tiny"}}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_load_and_follow_the_schema(path):
    assert load_space(str(path)).settings.tasks
    VALIDATOR.validate(read_file(path).data)


@pytest.mark.parametrize(
    "axes",
    [
        {"bias": {"choose": ["dot", {"kind": "huber", "delta": {"range": [0.1, 1], "log": True}}]}},
        {"optimizer": {"rate": {"range": [0.0, 1.0]}}, "window": {"range": [1, 4]}},
        {"block": {"heads": {"choose": [1, 2]}}},
    ],
)
def test_choices_are_allowed(axes):
    VALIDATOR.validate({"name": "a", **axes, "search": SEARCH})
    load_space({"name": "a", **axes, "search": SEARCH})


@pytest.mark.parametrize(
    "axes",
    [
        {"bias": {"choose": []}},
        {"bias": {"choose": ["hubber"]}},
        {"window": {"range": [1]}},
        {"bias": {"kind": "huber", "delta": {"choose": [1], "other": 2}}},
        {"search": {"tasks": {}}},
        {"search": {**SEARCH, "sampler": "annealing"}},
    ],
)
def test_what_the_loader_refuses(axes):
    data = {"name": "a", "search": SEARCH, **axes}
    assert not VALIDATOR.is_valid(data)
    with pytest.raises(Exception, match=r"\w"):
        load_space(data)
