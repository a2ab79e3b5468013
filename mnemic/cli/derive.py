"""``mnemic derive``: the rule of a spec, step by step."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemic import pipeline
from mnemic.audit import recorded
from mnemic.cli.arguments import AsJson, SpecArgument
from mnemic.cli.facts import Facts, kernels, uncompiled
from mnemic.cli.output import echo, print_json, raw, to_stderr
from mnemic.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from mnemic.compiler.oracle.verify import Check
    from mnemic.compiler.rule import Rule

Latex = Annotated[bool, typer.Option("--latex", help="As a LaTeX section (needs amsmath).")]
Markdown = Annotated[bool, typer.Option("--markdown", help="As Markdown.")]
Words = Annotated[
    bool, typer.Option("--words", help="In words: what each line says, for a newcomer.")
]
Verify = Annotated[
    bool, typer.Option("--check", help="Compare the rule with numerics of the spec as written.")
]


def derive(
    spec: SpecArgument,
    latex: Latex = False,
    markdown: Markdown = False,
    words: Words = False,
    as_json: AsJson = False,
    check: Verify = False,
) -> None:
    """Derive the update rule of a spec: equations, class, forms, costs, stability.

    With --check the gradient, the retention and the whole recurrence are compared with automatic
    differentiation and numerical minimisers of the problem as written; exit code 4 where two
    differ. A rule that no code is written for is derived all the same, with the reason. With
    --words each equation is followed by what it says.

    JSON: the derivation (name, class, forms, equations, steps, costs, stability, ...), "kernels":
    [{"form", "kernel", "gradient", "why", "text"}, ...], "refused": [reasons], "published":
    [{"paper", "where", "verdict", "change", "corrected"}, ...] (what papers print about it),
    and with --check "checks": [{"name", "error", "tolerance", "passed"}, ...].
    """
    if latex + markdown + as_json + words > 1:
        raise UsageError("--latex, --markdown, --words and --json exclude one another")
    rule = pipeline.derive(spec)
    fused = kernels(rule.problem.spec) if not (latex or markdown or words) else []
    refused = uncompiled(rule.problem.spec, spec)
    checks = _verified(rule) if check else ()
    if as_json:
        told = {"refused": refused, "published": recorded.about(rule.name)}
        print_json(_json(rule, fused, checks, check) | told)
    else:
        show = raw if latex or markdown else echo
        show(_worded(rule) if words else _text(rule, fused, latex=latex, markdown=markdown))
        if not (latex or markdown or words):
            _show_printed(rule.name)
        for reason in refused:
            (to_stderr if latex or markdown else echo)(f"not compiled: {reason}")
        _show(checks, aside=latex or markdown)
    if failed := [c.name for c in checks if not c.passed]:
        if as_json:
            raise typer.Exit(CheckFailed.exit_code)
        raise CheckFailed(f"{rule.name}: derived and stated differ in {', '.join(failed)}")


def _text(rule: "Rule", fused: list[Facts], *, latex: bool, markdown: bool) -> str:
    if latex:
        from mnemic.compiler.explain.render_latex import to_latex

        return to_latex(rule)
    if markdown:
        from mnemic.compiler.explain.render_markdown import to_markdown

        return to_markdown(rule)
    from mnemic.compiler.explain.render import to_text

    return to_text(rule, tuple(kernel["text"] for kernel in fused))


def _worded(rule: "Rule") -> str:
    from mnemic.compiler.explain.in_words import in_words

    return in_words(rule)


def _show_printed(name: str) -> None:
    """Print the papers' equations about a packaged system, each with its verdict."""
    found = recorded.about(name)
    if found:
        echo("\nPrinted equations (mnemic audit tells more)")
    for line in found:
        echo(f"  {recorded.describe_verdict(line)}")


def _verified(rule: "Rule") -> "tuple[Check, ...]":
    from mnemic.compiler.oracle.verify import verify

    return verify(rule)


def _json(
    rule: "Rule", fused: list[Facts], checks: "tuple[Check, ...]", wanted: bool
) -> dict[str, Any]:  # fmt: skip
    from mnemic.compiler.explain.render import to_json

    found = to_json(rule) | {"kernels": fused}
    return {**found, "checks": [_plain(c) for c in checks]} if wanted else found


def _plain(check: "Check") -> dict[str, Any]:
    return {
        "name": check.name,
        "error": check.error,
        "tolerance": check.tolerance,
        "passed": check.passed,
    }


def _show(checks: "tuple[Check, ...]", *, aside: bool) -> None:
    """Print the checks under the text; on standard error where that is a document."""
    for check in checks:
        verdict = "agrees" if check.passed else "DIFFERS"
        line = f"check: {check.name} {verdict}, error {check.error:.1e} of {check.tolerance:.0e}"
        (to_stderr if aside else echo)(line)
