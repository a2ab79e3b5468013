"""A worker of the load as a process of its own: SPACE RUN URL.

All is as in ``mnemic search`` but for what a trial's own processes do (`load_deeds`).
"""

import os
import signal
import sys
from pathlib import Path

import load_deeds

from mnemic.search.space.space import load_space
from mnemic.search.study import isolated, trial, work
from mnemic.search.study.search import open_search
from mnemic.search.study.storage import Beat
from mnemic.search.study.worker import work_on

BEAT = Beat(5, 30)


def stop(number: int, frame: object) -> None:
    """End as by Ctrl-C."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    space, run, url = sys.argv[1:]
    work.look, work.train_rung = load_deeds.look, load_deeds.train_rung
    isolated.PRELOADED[:] = ["load_deeds"]
    if os.environ.get(load_deeds.PAUSE) == "none":
        trial.isolated = load_deeds.called
    signal.signal(signal.SIGTERM, stop)
    try:
        search = open_search(load_space(space), Path(run), url, BEAT)
        try:
            work_on(search)
        finally:
            search.close()
    except KeyboardInterrupt:
        os._exit(143)  # its trial, if it had one, is put back by now
