"""What the tests of summaries share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgewake.cloud.summaries.store import Store
from tests.opened import closed_after


@pytest.fixture(autouse=True)
def stores_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every store that a test opens is closed after it."""
    yield from closed_after(Store, monkeypatch)
