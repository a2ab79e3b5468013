"""``mnemic doctor``: is this machine fit to run mnemic?"""

import importlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

import typer

from mnemic.cli.arguments import AsJson
from mnemic.cli.extras import extras, lacking
from mnemic.cli.output import echo, print_json
from mnemic.codegen import cache
from mnemic.dsl.catalogue import folder, names
from mnemic.dsl.load import load
from mnemic.errors import EnvironmentFailed, MnemicError

LEAST = (3, 11)


@dataclass(frozen=True)
class Finding:
    """One check: its name, whether it is well (None: not needed here), and what was found."""

    name: str
    ok: bool | None
    found: str


def doctor(as_json: AsJson = False) -> None:
    """Check Python, packages, devices, compiler, cache and packaged specs.

    Exit code 5 where something needed is missing or broken.

    JSON: {"ok", "checks": [{"name", "ok" (true, false, or null: not needed), "found"}, ...]}.
    """
    findings = [check() for check in CHECKS]
    ok = all(finding.ok is not False for finding in findings)
    if as_json:
        print_json({"ok": ok, "checks": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            verdict = {True: "ok", False: "FAILED", None: "-"}[finding.ok]
            echo(f"{finding.name:<10} {verdict:<7} {finding.found}")
    if not ok:
        raise typer.Exit(EnvironmentFailed.exit_code)


def _python() -> Finding:
    return Finding("python", sys.version_info >= LEAST, platform.python_version())


def _mnemic() -> Finding:
    try:
        return Finding("mnemic", True, version("mnemic"))
    except PackageNotFoundError:
        return Finding("mnemic", False, "not installed: run pip install in its folder")


def _sympy() -> Finding:
    try:
        import sympy
    except ImportError as error:
        return Finding("sympy", False, str(error))
    return Finding("sympy", True, sympy.__version__)


def _torch() -> Finding:
    try:
        import torch
    except (ImportError, OSError) as error:
        return Finding("torch", False, str(error))
    right = bool((torch.ones(2, 2) @ torch.ones(2)).eq(2).all())
    return Finding("torch", right, f"{torch.__version__}, {torch.get_num_threads()} threads")


def _device() -> Finding:
    try:
        import torch
    except (ImportError, OSError):
        return Finding("device", False, "torch cannot be imported")
    if not torch.cuda.is_available():
        return Finding("device", None, f"CPU, {os.cpu_count()} cores; no GPU")
    names = (torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return Finding("device", True, ", ".join(names))


def _triton() -> Finding:
    try:
        importlib.import_module("triton")
    except ImportError:
        return Finding("triton", None, "not installed; the forms in PyTorch run without it")
    return Finding("triton", True, version("triton"))


def _extras() -> Finding:
    without = {extra: lacking(extra) for extra in extras()}
    whole = ", ".join(extra for extra, packages in without.items() if not packages) or "none"
    parts = [f"{extra} ({', '.join(packages)})" for extra, packages in without.items() if packages]
    more = f"; not installed: {'; '.join(parts)}" if parts else ""
    return Finding("extras", None if parts else True, whole + more)


def _compiler() -> Finding:
    found = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    return Finding("compiler", True if found else None, found or "no gcc, cc or clang; only "
                   "Triton on a GPU and --compile on a CPU need one")  # fmt: skip


def _cache() -> Finding:
    place = cache.root()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        told = f"{place}: {error.strerror}; set {cache.VARIABLE} to a folder that can be written"
        return Finding("cache", False, told)
    return Finding("cache", True, str(place))


def _specs() -> Finding:
    known = names()
    for name in known:
        try:
            load(name)
        except MnemicError as error:
            return Finding("specs", False, str(error))
    return Finding("specs", bool(known), f"{len(known)} specs load from {folder()}")


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python, _mnemic, _sympy, _torch, _device, _triton, _extras, _compiler, _cache, _specs,
)  # fmt: skip
