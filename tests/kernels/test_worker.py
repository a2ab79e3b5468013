"""Processes that answer calls: interrupted, they end without a word."""

import os
import signal
import threading

import pytest

from mnemic.errors import EnvironmentFailed
from mnemic.kernels.worker import worker


def test_ctrl_c_ends_a_process_without_a_traceback(capfd, tmp_path):
    place = tmp_path / "naps.py"
    place.write_text("import time\n\ndef nap(seconds):\n    time.sleep(seconds)\n")
    with worker({}) as process:
        pid = process.call("os", "getpid")
        killed = threading.Timer(1.0, os.kill, (pid, signal.SIGINT))
        killed.start()
        with pytest.raises(EnvironmentFailed, match="the process ended with -2"):
            process.call(place, "nap", seconds=30)
    assert "Traceback" not in capfd.readouterr().err
