"""The server of a search's processes hears no Ctrl-C while it imports what takes seconds."""

import subprocess
import sys

WATCH = """
import signal, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "sympy", "mnemic.search.study.warmed"):
            deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            print(name, "deaf" if deaf else "hears", flush=True)
            raise SystemExit(0)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Watch())
from mnemic.search.study.isolated import PRELOADED
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
for name in PRELOADED:
    __import__(name)
"""


def test_ctrl_c_is_not_heard_before_anything_heavy_is_imported():
    done = subprocess.run(
        [sys.executable, "-c", WATCH], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("mnemic.search.study.warmed deaf\n", "")
