"""Rule → the files of its compiled folder."""

from importlib.metadata import version

from mnemic.codegen import entry, module, selftest
from mnemic.codegen.package import support_files
from mnemic.codegen.titles import title_of
from mnemic.compiler.explain.render import Equation, equations
from mnemic.compiler.explain.render_markdown import to_markdown
from mnemic.compiler.rule import Rule
from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.writing import to_yaml

CITED = {
    "prediction": ("prediction",),
    "error": ("error",),
    "gradient": ("gradient", "moments"),
    "momentum": ("momentum", "steps"),
    "keys": ("keys",),
    "weights": ("weights",),
    "dual": ("dual", "memory"),
    "step": ("use", "dual", "memory"),
    "norms": ("norms",),
    "squares": ("squares",),
    "means": ("means",),
    "link": ("link", "memory"),
    "readout": ("read-out",),
    "kernel": ("kernel",),
}
"""The parts of a plan, and the equations of the derivation that they compute."""


def _cited(listed: tuple[Equation, ...], names: tuple[str, ...]) -> str:
    """The numbers of the first name that the rule has, several where matrices move apart."""
    known = {e.name for e in listed}
    name = next((name for name in names if name in known), None)
    found = [str(e.number) for e in listed if e.name == name]
    return f"({', '.join(found)})" if found else ""


def compiled_files(rule: Rule) -> dict[str, str]:
    """The module, its support, the spec, the derivation, a self-test and commands."""
    spec = rule.problem.spec
    name = spec.module
    listed = equations(rule)
    text = "\n".join(f"({e.number}) {e.text}" for e in listed) + "\n"
    numbers = {part: _cited(listed, names) for part, names in CITED.items()}
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
