"""What `edgewake streams show` says of fields: names as they came, times, odd values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from edgewake.cloud.ops.letters.dead_letters import DeadLetterView
from edgewake.cloud.ops.services.stream_look import StreamLook, look_at
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Frame, Gap, Scalar
from edgewake.protocol.frames.record import Mode, Record
from edgewake.protocol.frames.stream import FieldInfo, Stream
from edgewake.protocol.ops.device import ARRIVAL, TimesSaid

NOW = 1_790_000_000_000
STREAM = Stream(
    name="home",
    fields={
        "temperature": FieldInfo(type=FieldType.NUMBER, unit="Cel", first_device="a"),
        "temperature_odd": FieldInfo(type=FieldType.STRING),
        "DS18B20_1": FieldInfo(type=FieldType.NUMBER, path="DS18B20-1", revision=1),
        "even_odd": FieldInfo(type=FieldType.STRING),
    },
)


def record(device: str, t: list[int], **fields: list[Scalar]) -> Record:
    return Record(device, "home", Mode.ACK, None, NOW, Frame(1, 1, 1, t, fields))


def letter(topic: str, detail: str, preview: str = "{}") -> DeadLetterView:
    return DeadLetterView(
        offset=1, device="a", reason=RejectReason.FIELD_TYPE, detail=detail, topic=topic, part="b",
        received_at=NOW, content_type="", bytes=2, preview=preview,
    )  # fmt: skip


def look(*records: Record, letters: list[DeadLetterView] | None = None) -> StreamLook:
    return look_at(STREAM, records, letters or [], minutes=15, is_cut=False)


def test_names_as_they_came_and_who_decided_are_said() -> None:
    said = {one.name: (one.path, one.unit, one.decided) for one in look().fields}
    assert said == {
        "temperature": ("", "Cel", False),
        "DS18B20_1": ("DS18B20-1", "", True),
        "even_odd": ("", "", False),  # no field `even`: it is a name like others
    }


def test_odd_values_are_counted_with_the_newest_as_a_sample() -> None:
    found = look(
        record("a", [NOW] * 3, temperature=[1, None, 2], temperature_odd=[None, "n/a", None]),
        record("b", [NOW], temperature=[None], temperature_odd=["21,5 °C"]),
        letters=[
            letter(
                "ew/v1/c/up/home", "field 'DS18B20_1': expected a number, found a string", "[1]"
            ),
            letter("ew/v1/c/up/other", "field 'temperature': expected a number, found a string"),
            letter("ew/v1/c/up/home", "a reading of a thing without a field"),
        ],
    )
    fields = {one.name: (one.values, one.odd, one.sample) for one in found.fields}
    assert fields["temperature"] == (2, 2, "21,5 °C")
    assert fields["DS18B20_1"] == (0, 1, "[1]")
    assert (found.readings, found.devices, found.refused) == (4, 2, 2)


def test_whole_numbers_that_sql_rounds_are_counted() -> None:
    """2^53 + 1 is none that a double can hold, 2^60 is one."""
    found = look(record("a", [NOW] * 4, temperature=[2**53 + 1, 2**60, -(2**63) + 1, None]))
    assert [one.rounded for one in found.fields if one.name == "temperature"] == [2]


def test_times_of_arrival_are_told_from_those_that_devices_say() -> None:
    gap = Record("a", "home", Mode.ACK, None, NOW, Frame(1, 2, 5, [], {}, Gap("quota", 7)))
    found = look(record("a", [NOW, NOW - 5, NOW + 5], temperature=[1, 2, 3]), gap)
    assert (found.own_times, found.agent_times, found.arrival_times) == (2, 0, 1)


def test_how_times_were_found_is_said_by_agents_and_by_the_catalogue() -> None:
    agents = {
        "a": {"home": {"ts (s)": 40, ARRIVAL: 2}, "other": {ARRIVAL: 9}},
        "gw": {"home": {"ts (s)": 1}},
    }
    asked: set[str] = set()

    def times_of(devices: Iterable[str]) -> dict[str, TimesSaid]:
        asked.update(devices)
        return {name: agents[name] for name in asked if name in agents}

    by_agent = replace(record("a", [NOW], temperature=[1]), sent_at=NOW)
    of_thing = replace(by_agent, device="thing", via="gw")
    stream = STREAM.model_copy(update={"times": {"t (s)": "plug"}})
    plain = record("plug", [NOW], temperature=[1])
    found = look_at(
        stream, [by_agent, of_thing, plain], [], minutes=15, is_cut=False, times_of=times_of
    )
    assert asked == {"a", "gw"}
    assert [(one.how, one.by, one.readings, one.first_device) for one in found.times] == [
        ("ts (s)", "agent", 41, "a"),
        (ARRIVAL, "agent", 2, "a"),
        ("t (s)", "bridge", None, "plug"),
    ]


def test_times_of_agents_are_told_from_those_that_devices_say() -> None:
    """An agent's own clock passed for a time that devices said."""
    by_agent = replace(record("a", [NOW - 70, NOW - 60], temperature=[1, None]), sent_at=NOW - 50)
    found = look(by_agent, record("b", [NOW], DS18B20_1=[1]))
    assert (found.own_times, found.agent_times, found.arrival_times) == (0, 2, 1)
    assert found.readings == 3
