"""The code in a model's folder: flat files that import one another by name, and no mnemic.

transformers copies only files that are reachable from the modelling file by lines ``from .name
import``. So a memory's files are put beside the model's, each prefixed by the memory's name, and
modules that are loaded later are imported by such lines as well.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from textwrap import dedent, indent

from mnemic.dsl.spec import Spec
from mnemic.hf.build import specs_of
from mnemic.hf.configuration_mnemic import MnemicConfig
from mnemic.models import feed_forward
from mnemic.pipeline import published_files

OWN = ("configuration_mnemic", "cache_mnemic", "modeling_mnemic")
"""Modules of this package that are copied as they are."""

_NAMED = re.compile(r"^([ \t]*)from \.(\w+) import\b", re.MULTILINE)
_WHOLE = re.compile(r"^([ \t]*)from \. import (\w+)( as \w+)?$", re.MULTILINE)
_TRITON = re.compile(
    r"^(?P<indent>[ \t]*)(?:import|from) triton\b.*\n(?:(?P=indent)(?:import|from) triton\b.*\n)*",
    re.MULTILINE,
)

GUARDED = """try:  # transformers asks everybody for what is imported outside of this
{lines}except ImportError as missing:
    raise ImportError("fused kernels need triton: pip install triton") from missing
"""

LAYERS = '''"""The memory layers of this model, by the name of their spec."""
{imports}
LAYERS = {{
{entries}
}}
SIZES = ("heads", "key_dim", "value_dim")


def memory_layer(config, index):
    """Return the memory layer of a block, as it starts."""
    told = config.memory(index)
    sizes = {{name: told.get(name) for name in SIZES}}
    return LAYERS[config.layers[index]](config.hidden_size, **sizes)
'''

LATER = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded when they are needed; transformers copies what it finds named here
{lines}
"""

MARKED = """
CODE = "{digest}"
\"\"\"Of all files here. To transformers two models with one configuration's text in folders of one
name are one, and the second would run the first one's code.\"\"\"
"""

AUTO_MAP = {
    "AutoConfig": "configuration_mnemic.MnemicConfig",
    "AutoModel": "modeling_mnemic.MnemicModel",
    "AutoModelForCausalLM": "modeling_mnemic.MnemicForCausalLM",
}
"""Where transformers finds the classes."""


def model_code(config: MnemicConfig) -> dict[str, str]:
    """Return the modules of a model's folder, by file name."""
    here = Path(__file__).parent
    found = {f"{name}.py": (here / f"{name}.py").read_text(encoding="utf-8") for name in OWN}
    found["feed_forward.py"] = Path(feed_forward.__file__).read_text(encoding="utf-8")
    classes, later = {}, []
    for name, spec in specs_of(config).items():
        files, loaded_later = memory_code(spec)
        assert not files.keys() & found.keys(), f"{name}: files of two memories have one name"
        found |= files
        classes[name] = spec.module
        later += loaded_later
    found["memory_layers.py"] = _layers(classes, later)
    found["configuration_mnemic.py"] += MARKED.format(digest=_digest(found))
    return found


def _digest(files: Mapping[str, str]) -> str:
    """Hash this code, to distinguish it from that of other models."""
    return sha256("\0".join(x for pair in sorted(files.items()) for x in pair).encode()).hexdigest()


def memory_code(spec: Spec) -> tuple[dict[str, str], list[str]]:
    """Return the modules that a spec's layer reaches, by file name, and those loaded later."""
    files = published_files(spec)
    texts = {name.removesuffix(".py"): x for name, x in files.items() if name.endswith(".py")}
    reached, later = _reached(texts, spec.module), set()
    names = {name: _file(name, spec.module) for name in reached}
    found = {}
    for name in sorted(reached):
        found[f"{names[name]}.py"] = _renamed(texts[name], names)
        later |= {names[whole] for _, whole, _ in _WHOLE.findall(texts[name])}
    return found, sorted(later)


def _file(name: str, module: str) -> str:
    return name if name == module else f"{module}_{name}"


def _reached(texts: Mapping[str, str], first: str) -> set[str]:
    """Return the module itself, those that it imports, and those that they import."""
    found, todo = set(), [first]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [match[1] for match in _NAMED.findall(texts[name])]
            todo += [match[1] for match in _WHOLE.findall(texts[name])]
    return found


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a module with its imports renamed to the files' names in this folder."""
    text = _TRITON.sub(_guarded, text)
    text = _NAMED.sub(lambda m: f"{m[1]}from .{names[m[2]]} import", text)
    return _WHOLE.sub(lambda m: f"{m[1]}from . import {names[m[2]]}{m[3] or f' as {m[2]}'}", text)


def _guarded(found: re.Match[str]) -> str:
    """Wrap imports of triton so that transformers does not take them for requirements."""
    lines = indent(dedent(found[0]), "    ")
    return indent(GUARDED.format(lines=lines), found["indent"])


def _layers(classes: Mapping[str, str], later: Iterable[str]) -> str:
    """Return the text of ``memory_layers.py``."""
    lines = "\n".join(f"    from .{name} import __name__ as _" for name in later)
    imports = LATER.format(lines=lines) if lines else ""
    imports += "\n" + "".join(
        f"from .{module} import Layer as {_class(module)}\n" for module in classes.values()
    )
    entries = "\n".join(f'    "{name}": {_class(m)},' for name, m in classes.items())
    return LAYERS.format(imports=imports, entries=entries)


def _class(module: str) -> str:
    return "".join(part.capitalize() for part in module.split("_"))
