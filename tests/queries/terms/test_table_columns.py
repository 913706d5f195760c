"""What can be joined with readings, and where its rows are."""

from __future__ import annotations

from edgewake.cloud.queries.terms.functions import STRING, TIME
from edgewake.cloud.queries.terms.table_columns import DEVICE_COLUMNS, columns_of, topic_of
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, Stream

OURS = Stream(name="devices", fields={"colour": FieldInfo(type=FieldType.STRING)})
EACH = {"device": STRING, "event_time": TIME}


def test_a_stream_called_devices_takes_the_place_of_the_registry() -> None:
    registry = columns_of("devices", {})
    assert registry == {**DEVICE_COLUMNS, **EACH}
    assert topic_of("devices", registry) == topics.DEVICES
    own = columns_of("devices", {"devices": OURS})
    assert own == {"colour": FieldType.STRING, **EACH}
    assert topic_of("devices", own) == topics.stream_topic("devices")
    assert columns_of("nothing", {}) is None
