"""Transformers without bars and chatter; a spec of every class."""

from __future__ import annotations

import pytest
import transformers
from small_models import one_of_each


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``each`` runs over a spec of every class and every kind of hybrid."""
    if "each" in metafunc.fixturenames:
        metafunc.parametrize("each", one_of_each())


@pytest.fixture(autouse=True)
def _quiet() -> None:
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
