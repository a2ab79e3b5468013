"""Makes a package look as if it were not installed: its name is in the variable BLOCKED."""

import importlib.metadata
import os
import sys

BLOCKED = os.environ.get("BLOCKED", "").split()


class Blocked:
    """Finds nothing under a blocked name."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


known = importlib.metadata.Distribution.from_name


def from_name(name):
    """Find no metadata of a blocked package either."""
    if name in BLOCKED:
        raise importlib.metadata.PackageNotFoundError(name)
    return known(name)


sys.meta_path.insert(0, Blocked())
importlib.metadata.Distribution.from_name = from_name
