"""The sequencer's progress in each partition of `ew.up`: rows `position` of `ew.sequence`.

Every partition of `ew.sequence`, one per shard, has such a row.

Value (JSON), for each partition of `ew.up` that belongs to the shard:

    {"17": [read_from, emitted_before, waits_from, received_at], …}

It is committed together with what it describes, so it is exact. The other rows there are the
sequencer's own (cloud/sequencer/order/state_rows.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import orjson

POSITION_KEY: Final = "position"
BEGINNING: Final = -2
"""`read_from` before anything was read; Kafka's own sign for the first record that there is."""


class Position(NamedTuple):
    """The progress in one partition of `ew.up`."""

    read_from: int = BEGINNING
    """First offset that a restart reads again: its effect may be in no row yet."""
    emitted_before: int = 0
    """Below it every record was passed on, dropped as a repeat, or waits."""
    waits_from: int = 0
    """First offset that waits for an earlier frame; `emitted_before` where none does."""
    received_at: int = 0
    """When the last record was received, by the bridge's clock, ms since 1970 UTC."""


def encode_positions(positions: Mapping[int, Position]) -> bytes:
    """The row of POSITION_KEY."""
    return orjson.dumps(
        {str(partition): tuple(position) for partition, position in positions.items()}
    )


def decode_positions(value: bytes) -> dict[int, Position]:
    """Read the row; raises ValueError."""
    try:
        return {
            int(partition): Position(*map(int, row))
            for partition, row in orjson.loads(value).items()
        }
    except (AttributeError, TypeError) as problem:
        raise ValueError(f"not a row of positions: {value[:80]!r}") from problem
