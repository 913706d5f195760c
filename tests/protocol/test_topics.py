"""Topics: made and read in one place, and nothing foreign passes."""

import pytest

from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.topics import UpTopic


def test_an_up_topic_survives_text() -> None:
    assert topics.parse_up(topics.up("car-07", "vehicle_position")) == UpTopic(
        "car-07", "vehicle_position"
    )
    assert topics.parse_status(topics.status("car-07")) == "car-07"


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "ew/v1/car/up",
        "ew/v2/car/up/s",
        "ew/v1/car/up/S",
        "ew/v1/c r/up/s",
        "ew/v1//up/s",
        "ew/v1/car/up/s/x",
        "ew/v1/car/up/" + "s" * 65,
    ],
)
def test_a_foreign_topic_is_refused(topic: str) -> None:
    with pytest.raises(Rejected) as refused:
        topics.parse_up(topic)
    assert refused.value.reason is RejectReason.TOPIC


@pytest.mark.parametrize(
    ("topic", "right"),
    [
        ("ew/v1/dev/up/room/temp", "ew/v1/dev/up/room_temp"),
        ("/ew/v1/dev/up/temp", "ew/v1/dev/up/temp"),
        ("ew/v1/dev/up/temp/", "ew/v1/dev/up/temp"),
        ("ew/v1/dev/up/Temp-1", "ew/v1/dev/up/temp_1"),
        ("ew/v1/dev/up/1wire", "ew/v1/dev/up/s_1wire"),
        ("ew/v1/dev/temp", "ew/v1/dev/up/temp"),
        ("ew/v1/dev/up", "ew/v1/dev/up/<stream>"),
        ("ew/v1/dev/status/now", "ew/v1/dev/status"),
        ("ew/v1/dev/req/price", "ew/v1/dev/req/feed"),
        ("ew/v1/d v/up/temp", "ew/v1/<device>/up/temp"),
        ("ew/v1/dev/up/" + "s" * 70, "ew/v1/dev/up/<stream>"),
        ("", "ew/v1/<device>/up/<stream>"),
    ],
)
def test_a_refusal_names_the_nearest_right_topic(topic: str, right: str) -> None:
    assert topics.nearest(topic) == right
    with pytest.raises(Rejected, match="the nearest right one is " + right.replace("<", "[<]")):
        topics.parse_up(topic)


@pytest.mark.parametrize(
    ("topic", "device"),
    [
        ("ew/v1/dev/up/s", "dev"),
        ("/ew/v1/dev/up/s/", "dev"),
        ("ew/v1/dev", "dev"),
        ("ew/v1", ""),
        ("ew/v1/d v/up/s", ""),
        ("a/b/c", ""),
    ],
)
def test_the_device_of_a_topic_be_it_right_or_not(topic: str, device: str) -> None:
    assert topics.device_in(topic) == device
