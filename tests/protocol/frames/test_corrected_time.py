"""Times as readers and queries see them."""

import pytest

from edgewake.protocol.frames import frame as frames
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.corrected_time import AHEAD_MS_MAX
from edgewake.protocol.frames.record import Mode
from tests.protocol.frames.test_record import FRAME

DAY_MS = 86_400_000


RECEIVED_MS = 1_790_000_002_000


@pytest.mark.parametrize(
    ("shift", "kept_at", "received_at", "first"),
    [
        (0, None, RECEIVED_MS, 1_790_000_000_000),
        (-3_600_000, None, RECEIVED_MS, 1_790_000_000_000 - 3_600_000),
        (0, None, RECEIVED_MS - DAY_MS, RECEIVED_MS - DAY_MS + AHEAD_MS_MAX),
        (0, RECEIVED_MS - DAY_MS, RECEIVED_MS, RECEIVED_MS - DAY_MS + AHEAD_MS_MAX),
    ],
    ids=[
        "right",
        "an hour ahead, as was found out",
        "a day ahead, and silent about it",
        "and the bridge as well",
    ],
)
def test_readers_see_the_times_that_queries_see(
    shift: int, kept_at: int | None, received_at: int, first: int
) -> None:
    """A clock a day ahead showed tomorrow in `tail` and SQL, and today in queries."""
    said = records.encode(
        device="a",
        stream="s",
        mode=Mode.ACK,
        sent_at=None,
        received_at=received_at,
        frame_bytes=frames.encode(FRAME),
    )
    shown, _ = records.readings(
        records.decode(records.with_clocks(said, shift=shift, kept_at=kept_at))
    )
    assert shown["t"] == first
