"""Records and readings a second, from what the sequencer reports of devices."""

from __future__ import annotations

from edgewake.cloud.ops.tables.rates import StreamRates
from edgewake.protocol.ops.device import DeviceSeen


def seen(**more: dict[str, int]) -> DeviceSeen:
    return DeviceSeen(device="a", last_seen=1, **more)


def test_readings_are_counted_beside_the_records_that_bring_them() -> None:
    rates = StreamRates()
    rates.add(seen(streams={"s": 1, "old": 1}, readings={"s": 50}))
    assert rates.readings_per_s("s") is None
    rates.sample(0.0)
    rates.add(seen(streams={"s": 2, "old": 3}, readings={"s": 100}))
    rates.sample(10.0)
    assert (rates.per_s("s"), rates.readings_per_s("s")) == (0.2, 10.0)
    assert (rates.per_s("old"), rates.readings_per_s("old")) == (0.3, None)
