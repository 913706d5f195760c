from __future__ import annotations

import pytest

from edgewake.cloud.ops.tables.devices import AGENT_OFFLINE_AFTER_MS
from edgewake.cloud.ops.tables.flow import delay_s
from edgewake.cloud.ops.tables.part_table import PARTS_MAX
from edgewake.cloud.ops.tables.tables import Change, OpsTables, TopicOffsets
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.leases import lease_record
from edgewake.protocol.ops.device import DeviceGaps, DeviceSeen, DeviceState, DeviceStatus
from edgewake.protocol.ops.query import Progress, QueryState, Registration
from tests.push.builders import lease

NOW = 1_790_000_000_000


def status_change(state: DeviceState = DeviceState.ONLINE, **more: object) -> Change:
    value = DeviceStatus(device="d", state=state, received_at=NOW, **more).to_json()
    return Change(topics.DEVICES, "d|status", value)


def part_change(part: str, state: str = "ready", *, at: int = NOW) -> Change:
    frame = (
        f'{{"epoch":null,"frame":null,"seq":null,"t":[{at}],"fields":{{"part":["{part}"],'
        f'"state":["{state}"],"pid":[7]}}}}'
    )
    value = records.encode(
        device="supervisor",
        stream="part_status",
        mode=Mode.ONE_WAY,
        sent_at=None,
        received_at=at,
        frame_bytes=frame.encode(),
    )
    return Change(topics.stream_topic("part_status"), "supervisor", value)


def query_changes(state: QueryState) -> list[Change]:
    registration = Registration(name="q", text="…", registered_at=NOW)
    progress = Progress(query="q", stream="s", state=state, updated_at=NOW)
    return [
        Change(topics.QUERIES, "q", registration.model_dump_json().encode()),
        Change(topics.PROGRESS, "q", progress.model_dump_json().encode()),
    ]


def test_a_device_is_told_when_it_comes_goes_and_changes_but_not_at_each_word() -> None:
    tables = OpsTables()
    told = [
        tables.apply(change, now=NOW)
        for change in [status_change(), status_change(backlog_readings=5), status_change(epoch=2)]
    ]
    told.append(tables.look(now=NOW + AGENT_OFFLINE_AFTER_MS + 1_000)[0])
    assert [[event["state"] for event in events] for events in told] == [
        ["online"],
        [],
        ["online"],
        ["offline"],
    ]


def test_a_loss_is_told_once_by_how_much_more_is_lost_and_what_was_before_is_none() -> None:
    tables = OpsTables()
    changes = [status_change(lost_readings=lost) for lost in (7, 7, 9, 0, 4, 3)]
    gaps = DeviceGaps(device="d", at=NOW, opened=2, missing=5).to_json()
    changes += [Change(topics.DEVICES, "d|gaps", gaps), Change(topics.DEVICES, "d|gaps", None)]
    events = [event for change in changes for event in tables.apply(change, now=NOW)]
    assert [
        {name: count for name, count in event.items() if name not in ("kind", "device")}
        for event in events
        if event["kind"] == "loss"
    ] == [{"lost": 2}, {"lost": 4}, {"lost": 3}, {"opened": 2, "missing": 5}]


def test_a_device_removed_from_the_table_is_forgotten() -> None:
    tables = OpsTables()
    tables.apply(status_change(), now=NOW)
    assert tables.apply(Change(topics.DEVICES, "d|status", None), now=NOW) == [
        {"kind": "device", "device": "d", "removed": True}
    ]
    assert tables.devices.page(None, 10, now=NOW) == []


def test_a_query_is_told_when_its_state_changes() -> None:
    tables = OpsTables()
    events = [
        event
        for change in query_changes(QueryState.RUNNING) + query_changes(QueryState.RUNNING)
        for event in tables.apply(change, now=NOW)
    ]
    assert [(event["registered"], event["state"]) for event in events] == [
        (True, None),
        (True, QueryState.RUNNING),
    ]


def test_a_part_that_the_supervisor_is_silent_about_becomes_unknown_once() -> None:
    tables = OpsTables()
    assert [e["state"] for e in tables.apply(part_change("bridge-1"), now=NOW)] == ["ready"]
    assert tables.apply(part_change("bridge-1"), now=NOW) == []
    assert [e["state"] for e in tables.look(now=NOW + 10_001)[0]] == ["unknown"]
    assert tables.look(now=NOW + 20_000)[0] == []
    assert [
        e["state"] for e in tables.apply(part_change("bridge-1", at=NOW + 30_000), now=NOW + 30_000)
    ] == ["ready"]


def test_parts_are_remembered_within_a_bound() -> None:
    tables = OpsTables()
    for i in range(PARTS_MAX + 5):
        tables.apply(part_change(f"p{i}"), now=NOW)
    assert (len(tables.parts), tables.unreadable) == (PARTS_MAX, 5)


def test_a_dead_letter_is_counted_by_reason_and_told_without_its_payload() -> None:
    tables = OpsTables()
    letter = DeadLetter(
        reason=RejectReason.JSON, detail="…", topic="t", part="bridge-1", received_at=NOW
    )
    (event,) = tables.apply(Change(topics.DEAD, "d", b"\xff", letter.headers(), 5), now=NOW)
    assert event == {"kind": "dead_letter", "offset": 5, "device": "d", **letter.model_dump()}
    assert tables.dead == {"json": 1}


def test_what_cannot_be_read_stops_nobody() -> None:
    tables = OpsTables()
    for topic in (
        topics.STREAMS,
        topics.DEVICES,
        topics.QUERIES,
        topics.PROGRESS,
        topics.LEASES,
        topics.DEAD,
        "ew.s.part_status",
    ):
        key = "x" if topic == topics.LEASES else "x|seen"
        assert tables.apply(Change(topic, key, b"\xff{"), now=NOW) == []
    assert tables.unreadable == 7
    tables.apply(
        Change(topics.DEVICES, "d|seen", DeviceSeen(device="d", last_seen=NOW).to_json()), now=NOW
    )
    assert [d.device for d in tables.devices.page(None, 10, now=NOW)] == ["d"]


def seen_change(device: str, records: int) -> Change:
    seen = DeviceSeen(device=device, last_seen=NOW, streams={"s": records}, records=records)
    return Change(topics.DEVICES, f"{device}|seen", seen.to_json())


def test_a_rate_counts_records_and_no_offsets() -> None:
    """Two devices send 10 and 5 records a second; the topic's offsets grow by a thousand."""
    tables = OpsTables()
    for second in range(20):
        tables.sample({"ew.s.s": TopicOffsets((0,), (second * 1000,))}, now_s=float(second))
        tables.apply(seen_change("a", 10), now=NOW)
        tables.apply(seen_change("b", 5), now=NOW)
    assert tables.rates.per_s("s") == 15.0
    assert tables.rates.per_s("other") is None


def test_what_is_not_sequenced_yet_is_counted_from_where_kafka_still_has_it() -> None:
    tables = OpsTables()
    up = {topics.UP: TopicOffsets((0, 100, 7), (50, 180, 7))}
    tables.sample(up, {0: 40, 1: 90}, now_s=0.0)  # what retention took waits no more
    assert tables.unsequenced == 10 + 80
    tables.sample(up, {0: 60, 1: 180}, now_s=1.0)  # told after the ends were
    assert tables.unsequenced == 0
    tables.sample(up, None, now_s=2.0)
    assert tables.unsequenced is None
    tables.sample({}, {0: 1}, now_s=3.0)
    assert tables.unsequenced is None


@pytest.mark.parametrize(
    ("waiting", "per_s", "delay"),
    [(0, 0.0, 0.0), (0, None, 0.0), (30, 60.0, 0.5), (30, 0.0, None), (None, 5.0, None)],
)
def test_a_delay_is_what_waits_at_the_pace_of_now(
    waiting: int | None, per_s: float | None, delay: float | None
) -> None:
    assert delay_s(waiting, per_s) == delay


def test_what_is_old_is_no_rate() -> None:
    tables = OpsTables(is_loaded=False)
    tables.apply(seen_change("a", 1_000_000), now=NOW)
    tables.is_loaded = True
    for second in range(2):
        tables.sample({}, now_s=float(second))
        tables.apply(seen_change("a", 7), now=NOW)
    assert tables.rates.per_s("s") == 7.0


def test_a_reason_of_somebody_else_makes_no_label() -> None:
    tables = OpsTables()
    for i in range(100):
        letter = DeadLetter(reason=f"made up {i}", detail="…", topic="t", part="p", received_at=NOW)
        tables.apply(Change(topics.DEAD, "d", None, letter.headers()), now=NOW)
    assert tables.dead == {"unknown": 100}


def test_leases_are_listed_in_order() -> None:
    tables = OpsTables()
    for name in ("b", "c", "a"):
        tables.apply(Change(topics.LEASES, name, lease_record.encode(lease(name))), now=NOW)
    tables.apply(Change(topics.LEASES, "b", None), now=NOW)
    assert tables.unreadable == 0
    tables.apply(Change(topics.LEASES, "delivery|d", b"{}"), now=NOW)
    tables.apply(Change(topics.LEASES, "delivery|d", None), now=NOW)
    assert tables.unreadable == 1, "deliveries have rows of their own in that topic"
    assert list(tables.lease_ids.after(None)) == sorted(tables.leases) == ["a", "c"]
