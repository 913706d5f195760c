"""The table of devices: presence by time, pages in order, a bound."""

from __future__ import annotations

import random

import pytest

from edgewake.cloud.ops.tables.device_table import LOOKED_AT_MAX, DeviceTable
from edgewake.cloud.ops.tables.devices import (
    AGENT_OFFLINE_AFTER_MS,
    PLAIN_SILENT_AFTER_MS,
    DevicePresence,
)
from edgewake.cloud.ops.tables.name_index import NameIndex
from edgewake.cloud.rights.names import Names
from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus

NOW = 1_790_000_000_000


def put(table: DeviceTable, device: str, *, at: int = NOW) -> object:
    return table.put(device, "seen", DeviceSeen(device=device, last_seen=at).to_json(), now=at)


def report(table: DeviceTable, device: str, *, at: int = NOW) -> object:
    status = DeviceStatus(device=device, state=DeviceState.ONLINE, received_at=at)
    return table.put(device, "status", status.to_json(), now=at)


def look(table: DeviceTable, now: int) -> list[object]:
    """All that is due."""
    events, is_more = table.look(now=now)
    while is_more:
        more, is_more = table.look(now=now)
        events += more
    return [(event["device"], event["state"]) for event in events]


def test_a_device_goes_quiet_after_its_time_and_once() -> None:
    table = DeviceTable()
    put(table, "plain")
    report(table, "agent")
    assert table.presences == {DevicePresence.ONLINE: 2, DevicePresence.SILENT: 0}
    assert look(table, NOW + PLAIN_SILENT_AFTER_MS) == []
    report(table, "agent", at=NOW + 20_000)
    assert look(table, NOW + PLAIN_SILENT_AFTER_MS + 1) == [("plain", "silent")]
    assert look(table, NOW + AGENT_OFFLINE_AFTER_MS + 1) == [], "it was heard of since"
    assert look(table, NOW + AGENT_OFFLINE_AFTER_MS + 20_001) == [("agent", "offline")]
    assert look(table, NOW + 999_999) == []
    assert (
        table.total(DevicePresence.ONLINE),
        table.total(DevicePresence.OFFLINE),
        table.total(DevicePresence.SILENT),
    ) == (0, 1, 1)


def test_a_last_will_that_comes_late_does_not_win_over_the_return() -> None:
    table = DeviceTable()

    def word(state: DeviceState, connected_at: int, at: int) -> None:
        status = DeviceStatus(device="d", state=state, connected_at=connected_at, received_at=at)
        table.put("d", "status", status.to_json(), now=at)

    word(DeviceState.ONLINE, 1, NOW)
    word(DeviceState.ONLINE, 2, NOW + 10)
    word(DeviceState.OFFLINE, 1, NOW + 20)
    found = table.get("d", now=NOW)
    assert found is not None
    assert found.state is DevicePresence.ONLINE
    word(DeviceState.OFFLINE, 2, NOW + 30)
    found = table.get("d", now=NOW)
    assert found is not None
    assert found.state is DevicePresence.OFFLINE


def test_a_fleet_that_goes_quiet_at_once_is_looked_at_in_steps() -> None:
    table = DeviceTable()
    for i in range(LOOKED_AT_MAX + 10):
        put(table, f"d{i}")
    events, is_more = table.look(now=NOW + 100_000)
    assert (len(events), is_more) == (LOOKED_AT_MAX, True)
    events, is_more = table.look(now=NOW + 100_000)
    assert (len(events), is_more) == (10, False)


def test_pages_are_in_order_and_filtered() -> None:
    table = DeviceTable()
    for name in ("c", "a", "d", "b"):
        put(table, name, at=NOW if name in "ad" else NOW - 100_000)
    look(table, NOW)
    assert [one.device for one in table.page(None, 3, now=NOW)] == ["a", "b", "c"]
    put(table, "bb")
    table.remove("c")
    assert [one.device for one in table.page("a", 9, now=NOW)] == ["b", "bb", "d"]
    assert [one.device for one in table.page(None, 9, DevicePresence.ONLINE, now=NOW)] == [
        "a",
        "bb",
        "d",
    ]


def test_the_devices_of_a_right_are_found_without_a_look_at_all_others() -> None:
    table = DeviceTable()
    for n in range(100):
        put(table, f"car-{n}")
    for name in ("bus-1", "bus-2", "a-bus-3", "tram-1"):
        put(table, name)
    buses = Names.of(["bus-*", "bus-1*", "tram-1", "tram-7"])
    assert table.names_in(buses) == ["bus-1", "bus-2", "tram-1"]
    assert table.names_in(Names.of(["*bus*", "bus-*"])) == ["a-bus-3", "bus-1", "bus-2"]
    assert table.names_in(Names.of([])) == []
    looked: list[str] = []
    found, total = table.find(
        "bus-1",
        1,
        lambda name: not looked.append(name),  # type: ignore[func-returns-value]
        among=table.names_in(buses),
        now=NOW,
    )
    assert ([one.device for one in found], total) == (["bus-2"], 3)
    assert looked == ["bus-1", "bus-2", "tram-1"]


def test_the_device_that_was_silent_longest_makes_room() -> None:
    table = DeviceTable(devices_max=3)
    for name in ("a", "b", "c"):
        put(table, name)
    put(table, "a")
    put(table, "d")
    assert (
        [one.device for one in table.page(None, 9, now=NOW)],
        table.dropped,
        sum(table.presences.values()),
    ) == (["a", "c", "d"], 1, 3)


def test_a_row_that_cannot_be_read_changes_nothing() -> None:
    table = DeviceTable()
    put(table, "a")
    for device in ("a", "new"):
        with pytest.raises(ValueError, match="JSON"):
            table.put(device, "seen", b"{", now=NOW)
    assert (len(table), table.get("a", now=NOW) is not None) == (1, True)


def test_names_in_order_equal_a_sorted_set() -> None:
    rng, index, names = random.Random(1), NameIndex(), set[str]()
    for _ in range(3000):
        name = f"n{rng.randrange(300)}"
        if name in names:
            names.remove(name)
            index.remove(name)
        else:
            names.add(name)
            index.add(name)
        if rng.random() < 0.1:
            after = rng.choice([None, f"n{rng.randrange(300)}"])
            assert list(index.after(after)) == sorted(
                one for one in names if after is None or one > after
            )


def test_devices_are_counted_and_found_by_the_version_of_their_agent() -> None:
    table = DeviceTable()

    def run(device: str, version: str) -> None:
        status = DeviceStatus(
            device=device, state=DeviceState.ONLINE, received_at=NOW, version=version
        )
        table.put(device, "status", status.to_json(), now=NOW)

    for device, version in {"a": "1.0", "b": "1.0", "c": "1.1", "d": ""}.items():
        run(device, version)
    assert table.versions == {"1.0": 2, "1.1": 1}
    found, total = table.find(None, 10, lambda _: True, version="1.0", now=NOW)
    assert ([one.device for one in found], total) == (["a", "b"], 2)
    run("a", "1.1")
    table.remove("b")
    assert table.versions == {"1.1": 2}
