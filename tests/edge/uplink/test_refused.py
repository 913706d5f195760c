"""Frames that the broker refuses for good: kept first, then a gap in their place."""

from __future__ import annotations

from pathlib import Path

from edgewake.edge.log.keeping.work import FrameKey, OutFrame
from edgewake.protocol.errors import RejectReason
from tests.edge.test_stop import refused
from tests.edge.uplink.test_session import out, streaming

FRAME = OutFrame(FrameKey("speed", 7, 1), b"{}", "type", 3, None)


class Freed:
    """What the log is told, and what lay in the quarantine then."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told: list[tuple[int, str, list[str]]] = []

    def free(self, key: FrameKey, reason: RejectReason) -> None:
        folder = self.directory / "quarantine"
        self.told.append(
            (
                key.frame,
                reason.value,
                sorted(each.name for each in folder.iterdir()) if folder.is_dir() else [],
            )
        )


async def test_the_bytes_are_kept_before_the_log_puts_a_gap_in_their_place(tmp_path: Path) -> None:
    session, events = streaming(out(1), out(2)), Freed(tmp_path)
    found = refused(session, tmp_path, events)
    assert found.add(out(1), RejectReason.OVERSIZE, "too large")
    assert found.add(out(2), RejectReason.TOPIC, "no topic")
    assert (len(session), len(found), events.told) == (0, 2, [])
    await found.keep()
    assert events.told == [(1, "oversize", ["speed.7.1"]), (2, "topic", ["speed.7.1", "speed.7.2"])]
    assert (len(found), found.quarantined) == (0, 2)


async def test_a_frame_that_is_free_already_is_not_taken_out(tmp_path: Path) -> None:
    found = refused(streaming(), tmp_path, Freed(tmp_path))
    assert not found.add(FRAME, RejectReason.OVERSIZE, "why")
    await found.keep()
    assert (len(found), found.quarantined) == (0, 0)


async def test_a_quarantine_that_cannot_be_written_stops_no_stream(tmp_path: Path) -> None:
    (tmp_path / "quarantine").write_text("a file stands there")
    events = Freed(tmp_path)
    found = refused(streaming(out(1)), tmp_path, events)
    found.add(out(1), RejectReason.OVERSIZE, "why")
    await found.keep()
    assert [frame for frame, _, _ in events.told] == [1]
