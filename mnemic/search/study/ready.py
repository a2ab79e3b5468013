"""Imported first by the server of `mnemic.search.study.isolated`, before anything that takes time.

A terminal sends Ctrl-C to the server as well. Python's own lets it pass only once all is imported
(`multiprocessing.forkserver`); until then it would end the server with a traceback. A process that
the server forks hears Ctrl-C again.
"""

import importlib
import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)
importlib.import_module("mnemic.search.study.warmed")
