"""Makes a package look as if it were not installed: its name is in the variable BLOCKED."""

import os
import sys


class Blocked:
    """Finds nothing under a blocked name."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ.get("BLOCKED", "").split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())
