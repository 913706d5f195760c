"""The waits of the agent's log that a test would sit out."""

from __future__ import annotations

import pytest

from edgewake.edge.log.writing import disk, waiting, writer


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of what they are.

    What is decided with the true ones is tested without waiting: `test_waiting.py`.
    """
    retry_s, free_s, loss_s = (
        disk.RETRY_S / 10,
        waiting.FREE_LINGER_S / 10,
        waiting.LOSS_LINGER_S / 10,
    )
    monkeypatch.setattr(disk, "RETRY_S", retry_s)
    monkeypatch.setattr(writer, "RETRY_S", retry_s)
    monkeypatch.setattr(writer, "FREE_LINGER_S", free_s)
    monkeypatch.setattr(waiting, "FREE_LINGER_S", free_s)
    monkeypatch.setattr(waiting, "LOSS_LINGER_S", loss_s)
