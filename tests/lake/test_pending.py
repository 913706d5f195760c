"""What was read and is not written yet, by topic and day."""

from __future__ import annotations

import pytest

from edgewake.cloud.lake import pending as module
from edgewake.cloud.lake.pending import Pending
from edgewake.cloud.lake.shape import Kind
from edgewake.cloud.lake.sources import Source
from edgewake.protocol.frames import record
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Mode

SOURCE = Source("ew.s.a", Kind.STREAM, "a")


def value(readings: int) -> bytes:
    frame = Frame(1, 1, 1, list(range(readings)), {"x": list(range(readings))})
    return record.encode(
        device="d",
        stream="a",
        mode=Mode.ACK,
        sent_at=None,
        received_at=1,
        frame_bytes=encode(frame),
    )


def test_rows_are_gathered_by_day_and_written_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    pending = Pending()
    for offset, (date, readings) in enumerate([("2026-01-01", 2), ("2026-01-02", 3)] * 2):
        pending.add(SOURCE, date, value(readings), key=b"d", partition=0, offset=offset)
    assert (pending.rows, pending.is_full) == (10, False)
    assert [(source, date) for source, date, _ in pending] == [
        (SOURCE, "2026-01-01"),
        (SOURCE, "2026-01-02"),
    ]
    for bound in ("ROWS_MAX", "BYTES_MAX", "CELLS_MAX"):
        with monkeypatch.context() as smaller:
            smaller.setattr(module, bound, 10)
            assert pending.is_full
