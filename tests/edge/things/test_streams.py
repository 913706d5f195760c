"""Which streams of the log stand for one of the configuration."""

from __future__ import annotations

from edgewake.edge.things.streams import made_of, streams_of
from edgewake.protocol.topics import of_all_things, of_thing


def test_with_things_those_of_all_of_them_are_read_too() -> None:
    assert streams_of("s", of_things=False) == ["s"]
    assert streams_of("s", of_things=True) == ["s", of_all_things("s")]


def test_what_is_made_of_a_thing_s_readings_is_the_thing_s() -> None:
    assert made_of("s", "alerts") == "alerts"
    assert made_of(of_thing("s", "pump-1"), "alerts") == of_thing("alerts", "pump-1")
