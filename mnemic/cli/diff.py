"""``mnemic diff``: what tells two rules apart."""

from mnemic import pipeline
from mnemic.cli.arguments import AsJson, SpecArgument
from mnemic.cli.output import echo, print_json


def diff(a: SpecArgument, b: SpecArgument, as_json: AsJson = False) -> None:
    """Compare the derived rules of two specs, and say whether one is the other.

    JSON: {"a", "b", "axes": [{"name", "a", "b"}, ...] (entries of the specs that differ), "terms"
    (parts of the rules) and "structure" (class, forms and costs) likewise, "verdict": {"kind",
    "sentence", "at", "change", "back", "how", "finished"}}; the kind is one of equal,
    equal-under-change, a-in-b, b-in-a and different.
    """
    difference = pipeline.diff(a, b)
    if as_json:
        print_json(difference.to_json())
    else:
        echo(str(difference))
