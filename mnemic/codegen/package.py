"""A compiled folder: what is in it, written whole or not at all, and imported from anywhere."""

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from mnemic.codegen.generator import generator
from mnemic.errors import EnvironmentFailed, UsageError

MARKER = "mnemic.json"
"""The file that tells a folder of ours."""

RECORD = "verified.json"
"""What ``mnemic verify`` writes into a folder; the support package reads it."""

SUPPORT = Path(__file__).parent / "support"


def support_files() -> dict[str, str]:
    """Read the support package that is copied beside generated code, by path."""
    return {
        f"support/{path.relative_to(SUPPORT).as_posix()}": path.read_text(encoding="utf-8")
        for path in sorted(SUPPORT.rglob("*.py"))
    }


def write(files: Mapping[str, str], folder: Path) -> Path:
    """Write files beside ``folder`` and rename; an older folder of ours is replaced.

    Raises ``UsageError`` where the folder holds anything that mnemic did not write, or that was
    changed by hand since, and ``EnvironmentFailed`` where it cannot be written.
    """
    folder = folder.expanduser().resolve()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder.parent):
            _refuse_foreign(folder)
            _write(files, folder)
    except OSError as error:
        raise EnvironmentFailed(f"cannot write {folder}: {error.strerror}") from None
    return folder


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other processes from replacing a folder in here meanwhile, where the system can.

    The folder itself is locked, so that no lock file is left.
    """
    with ExitStack() as stack:
        with suppress(ImportError, OSError):  # Windows; a file system without locks
            import fcntl

            place = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, place)
            fcntl.flock(place, fcntl.LOCK_EX)
        yield


def _write(files: Mapping[str, str], folder: Path) -> None:
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _fill(beside, files)
        _replace(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    digests = {name: sha256(text.encode()).hexdigest() for name, text in sorted(files.items())}
    marker = {"mnemic": version("mnemic"), "generator": generator(), "files": digests}
    (folder / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")
    folder.chmod(0o755)


def read(folder: Path) -> dict[str, str] | None:
    """Read the files of a folder of ours; ``None`` where it is none, or one of them was changed."""
    try:
        digests = _written(folder)
        found = {name: (folder / name).read_bytes() for name in digests}
        changed = any(sha256(found[name]).hexdigest() != digests[name] for name in digests)
        return None if changed else {name: text.decode() for name, text in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _written(folder: Path) -> dict[str, str]:
    """Read the digests of a folder's files by name, as its marker has them."""
    return dict(json.loads((folder / MARKER).read_text(encoding="utf-8"))["files"])


def _refuse_foreign(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder}: read a file, a folder to write to is needed")
    marker = folder / MARKER
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    present = {p for p in present if "__pycache__" not in p}
    if not present:
        return
    digests: dict[str, str] = {}
    if marker.is_file():
        try:
            digests = _written(folder)
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"{marker}: damaged, so that what mnemic wrote into the folder is not known; "
                "remove the folder or choose another"
            ) from None
    ours = {MARKER, RECORD, *digests} if marker.is_file() else set()
    if foreign := present - ours:
        raise UsageError(
            f"{folder}: holds files that mnemic did not write ({_shown(foreign)}); choose another"
        )
    texts = {name: (folder / name).read_bytes() for name in present & digests.keys()}
    changed = {name for name, text in texts.items() if sha256(text).hexdigest() != digests[name]}
    if changed:
        raise UsageError(
            f"{folder}: {_shown(changed)} changed since mnemic wrote it; choose another folder, or "
            "remove this one"
        )


def _shown(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")


def _replace(beside: Path, folder: Path) -> None:
    """Put the new folder in the place of the old one, which is kept until then."""
    if not folder.exists():
        os.replace(beside, folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    os.replace(folder, old / "was")
    try:
        os.replace(beside, folder)
    except OSError:
        os.replace(old / "was", folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def digest_of(folder: Path) -> str:
    """Digest the code of a folder, as it stands there."""
    paths = folder.rglob("*.py")
    return digest_of_files({p.relative_to(folder).as_posix(): p.read_bytes() for p in paths})


def digest_of_files(files: Mapping[str, bytes]) -> str:
    """Digest code by the paths at which it lies, or would lie, in a folder."""
    found = sha256()
    for name in sorted(name for name in files if name.endswith(".py")):
        found.update(name.encode() + b"\0" + files[name])
    return found.hexdigest()


def state_of(folder: Path) -> tuple[str | None, bool, str]:
    """Return what a pickle says of a folder: the digest of its code (``None`` where it is gone),
    whether it is as mnemic wrote it, and mnemic's version."""
    there = folder.is_dir()
    whole = not there or read(folder) is not None
    return digest_of(folder) if there else None, whole, version("mnemic")


def support(module: ModuleType, name: str) -> ModuleType:
    """Import a module of an imported folder's support, whether that is whole or published."""
    from mnemic.codegen.flat.published_files import TAKEN

    if (Path(str(module.__file__)).parent / "support").is_dir():
        return importlib.import_module(f"{module.__name__}.support.{name}")
    return importlib.import_module(f"{module.__name__}.{TAKEN.get(name, name)}")


def load(folder: Path, origin: object = None) -> ModuleType:
    """Import a compiled folder as a package of its own.

    ``origin`` is what pickles of its objects tell in place of the package's name; without it they
    can be copied only.
    """
    digest = sha256(str(folder).encode()).hexdigest()[:16]
    name = f"mnemic_compiled_{digest}"
    known = sys.modules.get(name)
    if known is not None:
        if origin is not None:
            known.__dict__.setdefault("ORIGIN", origin)
        return known
    place = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    if place is None or place.loader is None:
        raise EnvironmentFailed(f"{folder}: not a compiled folder")
    module = importlib.util.module_from_spec(place)
    if origin is not None:
        module.__dict__["ORIGIN"] = origin
    sys.modules[name] = module
    try:
        place.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
