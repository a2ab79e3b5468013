"""The extras of the package: which there are, and what each still lacks here."""

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version

OF_DEVELOPMENT = "test"
"""The extra that a user never needs."""

_REQUIREMENT = re.compile(r"^([\w.-]+).*;.*extra == ['\"]([\w-]+)['\"]")


@cache
def extras() -> dict[str, frozenset[str]]:
    """Return the packages of each extra, as the installed metadata declare them.

    An extra that builds on another has the other's packages, too.
    """
    found: dict[str, set[str]] = {}
    for line in requires("mnemic") or ():
        if match := _REQUIREMENT.match(line):
            found.setdefault(match[2], set()).add(match[1].lower())
    found.pop(OF_DEVELOPMENT, None)
    return {name: frozenset(packages) for name, packages in found.items()}


def to_install(package: str, extra: str = "") -> str:
    """Return what pip should install for a package: an extra that has it, or the package itself.

    That is ``extra``, which a command needs whole; else the smallest that has the package.
    """
    package = package.lower().replace("_", "-")  # what a package is imported by, as it is called
    having = {name for name, packages in extras().items() if package in packages}
    if extra not in having:
        extra = min(having, key=lambda name: (len(extras()[name]), name), default="")
    return f"'mnemic[{extra}]'" if extra else package


def lacking(extra: str) -> list[str]:
    """Return the packages that an extra adds to all smaller ones and that are not installed."""
    whole = extras()[extra]
    smaller = (packages for packages in extras().values() if packages < whole)
    return sorted(package for package in whole.difference(*smaller) if not _installed(package))


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
