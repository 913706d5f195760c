from __future__ import annotations

import pytest

from edgewake.cloud.ops.tables.devices import DevicePresence, DeviceView, presence, view
from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus

NOW = 1_790_000_000_000


def status(state: DeviceState = DeviceState.ONLINE, age_s: int = 0, **more: object) -> DeviceStatus:
    return DeviceStatus(device="d", state=state, received_at=NOW - age_s * 1000, **more)


def seen(age_s: int = 0, **more: object) -> DeviceSeen:
    return DeviceSeen(device="d", last_seen=NOW - age_s * 1000, **more)


@pytest.mark.parametrize(
    ("said", "sent", "expected"),
    [
        (status(), None, DevicePresence.ONLINE),
        (status(age_s=149), None, DevicePresence.ONLINE),
        (status(age_s=151), None, DevicePresence.OFFLINE),
        (status(age_s=151), seen(age_s=5), DevicePresence.ONLINE),
        (status(DeviceState.OFFLINE), seen(age_s=1), DevicePresence.OFFLINE),
        (status(DeviceState.OFFLINE, age_s=5), seen(age_s=1), DevicePresence.ONLINE),
        (status(plain=True, age_s=86_399), None, DevicePresence.ONLINE),
        (status(plain=True, age_s=86_401), None, DevicePresence.SILENT),
        (status(DeviceState.OFFLINE, plain=True, age_s=9_999_999), None, DevicePresence.OFFLINE),
        (status(DeviceState.OFFLINE, plain=True, age_s=99), seen(age_s=59), DevicePresence.ONLINE),
        (status(DeviceState.OFFLINE, plain=True, age_s=99), seen(age_s=61), DevicePresence.SILENT),
        (None, seen(age_s=59), DevicePresence.ONLINE),
        (None, seen(age_s=61), DevicePresence.SILENT),
    ],
)
def test_presence_follows_the_last_word_and_the_last_record(
    said: DeviceStatus | None, sent: DeviceSeen | None, expected: DevicePresence
) -> None:
    assert presence(said, sent, now=NOW) is expected


def test_a_device_joins_what_its_agent_says_with_what_the_cloud_saw() -> None:
    joined = view(
        "d",
        status(age_s=3, backlog_readings=7, epoch=2),
        seen(age_s=1, skew_ms=-40, records=9),
        DevicePresence.ONLINE,
        streams={"s"},
    )
    expected = DeviceView(
        device="d",
        state=DevicePresence.ONLINE,
        agent=True,
        last_seen=NOW - 1000,
        skew_ms=-40,
        backlog_readings=7,
        streams=["s"],
        records=9,
        epoch=2,
    )
    assert joined == expected
