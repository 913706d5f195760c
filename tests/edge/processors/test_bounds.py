"""What a chain remembers stays within what the log keeps of it: many keys, many windows, long
texts.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.consumer import STATE_BYTES_MAX
from edgewake.edge.processors.config import ChainConfig
from edgewake.edge.processors.operators.lttb import BUCKET_CHARS_MAX
from edgewake.edge.processors.processing import Processing
from tests.edge.helpers import opened, put
from tests.edge.processors.helpers import at, chain, readings, remarks
from tests.services import PATIENCE_S

PANES = {
    "type": "window",
    "fields": ["x", "y", "z"],
    "size_s": 100,
    "every_s": 1,
    "by": "k",
    "keys_max": 10_000,
}
CURVE = {"type": "lttb", "field": "x", "every_s": 86_400, "by": "k"}


@given(readings=readings(), bytes_max=st.integers(500, 2000))
def test_a_state_that_is_kept_has_at_most_so_many_bytes_and_the_chain_goes_on_with_it(
    readings: Any, bytes_max: int
) -> None:
    one = chain(
        PANES, {"type": "window", "fields": ["readings"], "size_count": 50, "every_count": 1}
    )
    state = one.apply(one.begin(), readings).state
    before = state.encode()
    kept, body = one.kept(state, bytes_max)
    assert len(body) <= bytes_max
    assert one.resume(body) == one.resume(kept.encode())
    assert (body == before) == (len(before) <= bytes_max)
    assert (kept.readings_in, kept.readings_out) == (state.readings_in, state.readings_out)
    one.apply(one.resume(body), readings)


def test_of_many_keys_those_that_are_used_are_remembered_and_what_is_forgotten_is_counted():
    one = chain(PANES)
    vehicles = [
        at(second, k=f"v{number}", x=1.5, y=second, z=second)
        for number in range(20)
        for second in range(60)
    ]
    state, body = one.kept(one.apply(one.begin(), vehicles).state, 80_000)
    assert len(body) <= 80_000
    left = list(state.states[0])
    assert left == [f'"v{number}"' for number in range(20 - len(left), 20)]
    assert 5 <= len(left) < 20
    assert one.counts(state)["remarks"]["1 window"]["state_forgotten"] == 2
    again, same = one.kept(state, 80_000)
    assert (again, same) == (state, body)


def test_a_bucket_of_long_texts_is_closed_early():
    text = "x" * 4_000
    one = chain({"type": "lttb", "field": "x", "every_s": 86_400})
    long = [at(second, x=second, text=text) for second in range(60)]
    assert remarks(one, long)["1 lttb"] == {"bucket_full": 3}
    state = one.apply(one.begin(), long).state
    assert len(state.encode()) < 3 * BUCKET_CHARS_MAX
    assert "bucket_full" not in remarks(one, [at(second, x=second) for second in range(60)]).get(
        "1 lttb", {}
    )


@pytest.mark.parametrize("processor", [PANES, CURVE], ids=["windows", "texts"])
async def test_a_chain_that_remembers_too_much_goes_on_and_takes_no_agent_down(
    tmp_path: Path, processor: dict[str, Any]
) -> None:
    config = ChainConfig.checked({"stream": "speed", "into": "derived", "processor": [processor]})
    with opened(tmp_path) as events:
        processing = Processing([config], events)
        await processing.open()
        running = asyncio.create_task(processing.chains["derived"].run())
        speed = events.stream("speed")
        for part in range(10):
            many = [
                at(n / 40, k=f"v{n % 50}", x=n / 7, y=n / 3, z=n / 9, text="t" * 900)
                for n in range(part * 500, part * 500 + 500)
            ]
            await asyncio.to_thread(
                speed.wait_accepted, speed.append_all(many), timeout_s=PATIENCE_S
            )
        async with asyncio.timeout(PATIENCE_S):
            while not running.done() and processing.counts()["derived"]["in"] < 5_000:
                await asyncio.sleep(0.02)
        counts = processing.counts()["derived"]
        assert not running.done(), running
        running.cancel()
        await asyncio.wait({running})
    assert counts["in"] == 5_000
    assert counts["remarks"][f"1 {processor['type']}"]["state_forgotten"] > 0
    with opened(tmp_path) as events:
        put(events, range(1))
        kept = (await events.consumer("chain derived", ["speed"])).state
    assert kept is not None
    assert len(kept) <= STATE_BYTES_MAX
