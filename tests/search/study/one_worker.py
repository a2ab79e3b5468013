"""A worker as a process of its own: SPACE RUN URL."""

import sys
from pathlib import Path

from mnemic.search.space.space import load_space
from mnemic.search.study.search import open_search
from mnemic.search.study.storage import Beat
from mnemic.search.study.worker import work_on

if __name__ == "__main__":
    space, run, url = sys.argv[1:]
    search = open_search(load_space(space), Path(run), url, Beat(1, 4))
    work_on(search)
    search.close()
