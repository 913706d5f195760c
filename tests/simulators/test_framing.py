"""Readings gathered into frames: each once, in order, numbered without holes, and a refused frame
apart again.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames.frame import FRAME_BYTES_MAX, Gap, decode, from_plain
from edgewake.simulators import framing
from edgewake.simulators.framing import FRAME_READINGS, Framing, singly

values = st.one_of(
    st.integers(-(2**40), 2**40),
    st.booleans(),
    st.text("abc", max_size=5),
    st.lists(st.integers(0, 9), max_size=3),
)
fields = st.dictionaries(st.sampled_from(["speed", "street", "on"]), values, min_size=1)

T0 = 1_790_000_000_000


@given(st.lists(st.tuples(st.sampled_from(["d1", "d2", "d3"]), fields), max_size=400))
def test_each_reading_is_in_one_frame_in_its_place(rows: list[tuple[str, dict[str, Any]]]) -> None:
    gather = Framing(7)
    made = [frame for t, (device, row) in enumerate(rows) for frame in gather.put(device, t, row)]
    made += gather.rest()
    found: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    numbers: dict[str, int] = defaultdict(int)
    for device, payload, readings in made:
        frame = decode(payload)
        numbers[device] += 1
        assert (frame.epoch, frame.frame, frame.seq) == (7, numbers[device], len(found[device]) + 1)
        assert len(frame.t) == readings <= FRAME_READINGS
        for i, t in enumerate(frame.t):
            found[device].append(
                (
                    t,
                    {
                        name: column[i]
                        for name, column in frame.fields.items()
                        if column[i] is not None
                    },
                )
            )
    for device in {device for device, _ in rows}:
        sent = [(t, row) for t, (who, row) in enumerate(rows) if who == device]
        as_kept = [
            (
                t,
                {
                    name: orjson.dumps(v).decode() if isinstance(v, list) else v
                    for name, v in row.items()
                },
            )
            for t, row in sent
        ]
        assert found[device] == as_kept
    assert gather.rest() == []


def test_a_frame_that_would_be_too_large_is_cut() -> None:
    gather = Framing(1)
    made = [
        frame
        for t in range(FRAME_READINGS)
        for frame in gather.put("d", t, {f"f{i}": "x" * 8000 for i in range(5)})
    ]
    assert len(made) > 1
    assert all(len(frame.payload) <= FRAME_BYTES_MAX for frame in made)
    assert [t for frame in made for t in decode(frame.payload).t] == list(range(FRAME_READINGS))
    assert [decode(frame.payload).frame for frame in made] == list(range(1, len(made) + 1))


def test_devices_that_fill_no_frame_do_not_fill_the_memory() -> None:
    gather = Framing(1)
    made = [len(gather.put(f"d{i}", i, {"x": 1})) for i in range(framing.HELD_READINGS_MAX)]
    assert made[-1] == framing.HELD_READINGS_MAX
    assert sum(made[:-1]) == 0
    assert gather.rest() == []


def test_a_refused_frame_goes_reading_by_reading_and_leaves_no_hole() -> None:
    gather = Framing(1)
    for n in (5, 6, 7):
        gather.put("d", T0 + n, {"x": n} if n != 6 else {"x": "x" * 10_000})
    (frame,) = gather.rest()
    (none, gap), *readings = singly(frame.payload, 2)
    stated = decode(gap)
    assert (none, stated.frame, stated.first_frame, stated.gap) == (0, 1, 1, Gap("rejected", 0))
    with pytest.raises(Rejected):
        from_plain(readings.pop(1)[1], received_at=0)
    plain = [from_plain(payload, received_at=0) for count, payload in readings if count == 1]
    assert [(one.epoch, one.seq, one.t, dict(one.fields)) for one in plain] == [
        (2, 1, [T0 + 5], {"x": [5]}),
        (2, 3, [T0 + 7], {"x": [7]}),
    ]
