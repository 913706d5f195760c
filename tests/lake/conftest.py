"""What the tests of the lake share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from edgewake.cloud.lake.manifest import Manifest
from tests.opened import closed_after


@pytest.fixture(autouse=True)
def manifests_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every manifest that a test opens is closed after it."""
    yield from closed_after(Manifest, monkeypatch)
