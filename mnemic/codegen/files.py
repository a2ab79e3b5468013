"""Rule → the files of its compiled folder."""

from importlib.metadata import version

from mnemic.codegen import entry, module, selftest
from mnemic.codegen.citations import numbers_of
from mnemic.codegen.package import support_files
from mnemic.codegen.titles import title_of
from mnemic.compiler.explain.render import equations
from mnemic.compiler.explain.render_markdown import to_markdown
from mnemic.compiler.rule import Rule
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.writing import to_yaml


def compiled_files(rule: Rule) -> dict[str, str]:
    """Return module, kernels, support, spec, derivation, self-test and commands, by name."""
    spec = rule.problem.spec
    name = spec.module
    listed = equations(rule)
    text = "\n".join(f"({e.number}) {e.text}" for e in listed) + "\n"
    numbers = numbers_of(listed)
    source = module.source(
        rule,
        version=version("mnemic"),
        spec_hash=spec_hash(spec)[:12],
        text=text,
        numbers=numbers,
    )
    return {
        f"{name}.py": source.module,
        **({"kernels.py": source.kernels} if source.kernels else {}),
        **({"step.py": source.step} if source.step else {}),
        "__init__.py": f'"""{title_of(spec)}, compiled by mnemic."""\n\n'
        f"from .{name} import Layer as Layer, rule as rule\n",
        "__main__.py": entry.source(rule, name),
        "spec.yaml": to_yaml(spec),
        "DERIVATION.md": to_markdown(rule),
        f"test_{name}.py": selftest.source(rule, name),
        **support_files(),
    }
