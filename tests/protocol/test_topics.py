"""Topics: made and read in one place, and nothing foreign passes."""

import pytest

from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.topics import UpTopic


def test_an_up_topic_survives_text() -> None:
    assert topics.parse_up(topics.up("car-07", "vehicle_position")) == UpTopic("car-07", "vehicle_position")
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
