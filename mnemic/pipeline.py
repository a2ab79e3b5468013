"""The whole compiler on one page: a spec in, a checked, running layer out."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mnemic.dsl.hashing import spec_hash
from mnemic.dsl.load import load, located
from mnemic.dsl.spec import Spec
from mnemic.errors import EnvironmentFailed, InvalidSpec, named_arguments
from mnemic.garbage import uncollected

if TYPE_CHECKING:
    from mnemic.compiler.compare.diff import Difference
    from mnemic.compiler.rule import Rule

Source = str | PathLike[str] | Mapping[str, Any] | Spec


@dataclass(frozen=True)
class Compiled:
    """A compiled spec: call it as an operator, or make a layer of it.

    ``out, state = compiled(q, k, v, **coefficients)`` with the contract of
    ``compiled.operator``; ``compiled.layer(dim)`` is an ``nn.Module`` on ``[B, T, dim]``.
    """

    spec: Spec
    folder: Path

    @cached_property
    def module(self) -> ModuleType:
        """The generated package."""
        from mnemic.codegen import package
        from mnemic.codegen.origin import Origin

        return package.load(self.folder, Origin(self))

    @property
    def operator(self) -> Any:
        """The generated operator."""
        return self.module.rule

    @property
    def source(self) -> str:
        """The generated module's text."""
        return (self.folder / f"{self.spec.module}.py").read_text(encoding="utf-8")

    @cached_property
    def rule(self) -> "Rule":
        """The derived rule."""
        return derive(self.spec)

    @property
    def coefficients(self) -> Any:
        """The operator's coefficients: name → meaning, shape and range."""
        return self.operator.coefficients

    @property
    def state(self) -> Any:
        """The operator's states: name → meaning."""
        return self.operator.state

    @property
    def params(self) -> Any:
        """What a memory of layers starts from: name → shape."""
        return self.operator.params

    @property
    def forms(self) -> Any:
        """The operator's forms, by name."""
        return self.operator.forms

    def read(self, q: Any, state: Mapping[str, Any], **others: Any) -> Any:
        """Compute M(φ(q)) of a state, q [B, T, H, d_k] → [B, T, H, d_v], and write nothing.

        ``others`` are the operator's ``read``'s, by name: coefficients of the read-out, ``params``,
        ``sizes``. Raises ``ValueError`` for what does not fit.
        """
        return self.operator.read(q, state, **others)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.operator(*args, **kwargs)

    def layer(self, dim: int, *others: Any, **options: Any) -> Any:
        """Make an ``nn.Module`` on ``[B, T, dim]`` around the operator, as the spec's block says.

        ``options`` are the layer's, by name: heads, key_dim, value_dim. Raises ``ValueError`` for
        an option that is positional or unknown.
        """
        return self.module.Layer(dim, *others, **options)

    def __str__(self) -> str:
        return self.source

    def __repr__(self) -> str:
        return f"Compiled({self.spec.name!r}, folder={str(self.folder)!r})"

    def __copy__(self) -> "Compiled":
        return self  # nothing of it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> "Compiled":
        return self

    def __reduce__(self) -> Any:
        from mnemic.codegen.package import state_of
        from mnemic.dsl.writing import short

        return restored, (short(self.spec), str(self.folder), *state_of(self.folder))


def read(source: Source) -> Spec:
    """Read a spec from a path, a name, a mapping or itself."""
    return source if isinstance(source, Spec) else load(source)


@named_arguments
def derive(source: Source) -> "Rule":
    """Derive the rule of a spec: Spec → Problem → Rule."""
    from mnemic.compiler.derive import derive_spec

    spec = read(source)
    with placed(spec, source):
        return derive_spec(spec)


@contextmanager
def placed(spec: Spec, source: Source) -> Iterator[None]:
    """Tell what is refused of a spec within at its place in the text that it was read from."""
    try:
        yield
    except InvalidSpec as refusal:
        if isinstance(source, Spec):
            raise
        raise located(refusal.issues, spec.name, source) from None


@named_arguments
def compile(
    source: Source, out: str | PathLike[str] | None = None, *, tools: bool = True
) -> Compiled:  # fmt: skip
    """Compile a spec to a folder that runs: Spec → Problem → Rule → Plans → source.

    Without ``out`` the folder lies in the cache, with mnemic's whole support package; the folder
    ``out`` is fit to publish: flat, and with only what this spec needs of that package;
    ``tools=False`` leaves out its commands verify and tune and its own test. Raises
    ``InvalidSpec`` for an invalid spec, or one whose rule is derived but not compiled yet, and
    ``UsageError`` for an output folder that is not mnemic's.
    """
    from mnemic.codegen import cache, package

    spec = read(source)
    with placed(spec, source):
        if out is not None:
            made = published_files(spec, tools=tools)
            return Compiled(spec, package.write(made, Path(out)))
        key, make = _cached(spec)
        return Compiled(spec, cache.folder(key, make))


def _cached(spec: Spec) -> tuple[str, Callable[[], dict[str, str]]]:
    """Return the name of a spec's folder in the cache, and what makes its files."""
    return spec_hash(spec, labels=True), partial(files, spec)


def restored(
    spec: Mapping[str, Any], folder: str, digest: str | None, whole: bool, version: str
) -> Compiled:
    """Restore a compiled spec from a pickle: its folder, if it is here as it was, or compiled anew.

    Warns where another version of mnemic wrote other code. Raises ``EnvironmentFailed`` where the
    code had been changed by hand, so that the spec does not tell it, and is not here.
    """
    from mnemic.codegen import package

    known, place = load(spec), Path(folder)
    if digest is not None and place.is_dir() and package.digest_of(place) == digest:
        return Compiled(known, place)
    if not whole:
        raise EnvironmentFailed(
            f"{known.name}: pickled with code that was changed by hand, in {folder}: that folder, "
            "as it was, is needed at the same place"
        )
    found = compile(known)
    if digest not in (None, package.digest_of(found.folder), *_digests(found)):
        told = f"{known.name}: pickled with the code of mnemic {version}, which differed"
        warnings.warn(f"{told}; compiled again by this version", stacklevel=2)
    return found


def _digests(found: Compiled) -> Iterator[str]:
    """Yield the digests of what is published of a spec in the cache."""
    from mnemic.codegen import package

    for tools in (True, False):
        made = published_files(found.spec, tools=tools)
        yield package.digest_of_files({name: text.encode() for name, text in made.items()})


def published_files(spec: Spec, *, tools: bool = True) -> Mapping[str, str]:
    """Return the files of a compiled folder that is fit to publish, by name."""
    from mnemic.codegen import cache

    with uncollected():
        return cache.published(*_cached(spec), tools=tools)


def files(spec: Spec) -> dict[str, str]:
    """Return everything that a compiled folder holds, by name."""
    from mnemic.codegen.files import compiled_files
    from mnemic.compiler.uncompiled import refuse

    with uncollected():
        rule = derive(spec)  # Spec -> Problem -> Rule
        refuse(rule)
        return compiled_files(rule)  # Rule -> Plans -> source


@named_arguments
def diff(a: Source, b: Source) -> "Difference":
    """Compare two rules: what tells them apart, and whether one is the other."""
    from mnemic.compiler.compare.diff import diff as compare

    return compare(derive(a), derive(b))
