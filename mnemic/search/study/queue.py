"""Points to try before a sampler proposes any: the starting specs, and those of a grid."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from optuna.study import Study

from mnemic.errors import InvalidSpec, Issue, UsageError
from mnemic.search.space.asking import every
from mnemic.search.space.space import Space
from mnemic.search.study.records import START
from mnemic.search.study.starts import starts

LARGEST_GRID: Final = 10_000
AT_A_TIME: Final = 64
"""Points of a grid that are queued together: every look at a study reads all that waits in it."""


def queue_starts(study: Study, space: Space, tell: Callable[[str], None]) -> None:
    """Queue the starting specs that the study does not have yet.

    ``tell`` is called for each spec that ``start`` names but the space does not contain.
    """
    known, held = _known(study), dict(starts(space))
    for name in space.settings.start:
        if name != "all" and name not in held:
            tell(f"search.start: {name} is no point of the space, so it is not begun with")
    for name, answers in held.items():
        if _key(answers) not in known:
            study.enqueue_trial(answers, user_attrs={START: name})
            known.add(_key(answers))


def queue_grid(study: Study, space: Space) -> bool:
    """Queue the next points of a grid; False where the study has them all."""
    known = _known(study)
    new = (answers for answers in _grid(space) if _key(answers) not in known)
    more = list(islice(new, AT_A_TIME))
    for answers in more:
        study.enqueue_trial(answers)
    return bool(more)


def demand_grid(space: Space) -> None:
    """Raise where a space is no grid, or one that is too large."""
    deque(_grid(space), maxlen=0)


def _known(study: Study) -> set[str]:
    """Return the keys of the points that a study has."""
    trials = study.get_trials(deepcopy=False)
    return {_key(one.system_attrs.get("fixed_params", one.params)) for one in trials}


def _key(answers: Mapping[str, Any]) -> str:
    """Return a key that identifies a point; numbers are rounded to twelve digits."""
    told = {n: f"{x:.12g}" if isinstance(x, float) else x for n, x in answers.items()}
    return json.dumps(told, sort_keys=True)


def _grid(space: Space) -> Iterator[dict[str, Any]]:
    if space.size > LARGEST_GRID and space.size != float("inf"):
        raise UsageError(f"a grid of {space.size:.0f} points: at most {LARGEST_GRID} are walked")
    try:
        yield from every(space.root)
    except ValueError as error:
        issue = Issue("a grid needs a step for every range", str(error))
        raise InvalidSpec([issue]) from None
