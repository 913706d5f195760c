"""Things behind gateways in the table of devices: where they are, and why they are silent. Pure."""

from __future__ import annotations

from edgewake.cloud.ops.services.problems import device_problems
from edgewake.cloud.ops.tables.device_table import LOOKED_AT_MAX, WAYS_MAX, DeviceTable
from edgewake.cloud.ops.tables.devices import PLAIN_SILENT_AFTER_MS, DevicePresence
from edgewake.protocol.ops.device import DeviceSeen, DeviceState, DeviceStatus

NOW = 1_790_000_000_000


def seen(table: DeviceTable, thing: str, via: str, *, newest: int, at: int = NOW) -> object:
    row = DeviceSeen(device=thing, last_seen=at, via=via, newest=newest, streams={"power": 1})
    return table.put(thing, f"seen|{via}", row.to_json(), now=at)


def says(
    table: DeviceTable, gateway: str, state: DeviceState = DeviceState.ONLINE, *, at: int = NOW
) -> object:
    status = DeviceStatus(device=gateway, state=state, received_at=at, connected_at=at)
    return table.put(gateway, "status", status.to_json(), now=at)


def look(table: DeviceTable, now: int) -> list[tuple[str, str, str]]:
    """All that is due."""
    events, is_more = table.look(now=now)
    while is_more:
        more, is_more = table.look(now=now)
        events += more
    return [(event["device"], event["state"], event["reason"]) for event in events]


def shown(table: DeviceTable, thing: str, now: int = NOW) -> tuple[str, str, list[str]]:
    found = table.get(thing, now=now)
    assert found is not None
    return found.via, found.state, found.former


def test_a_thing_is_where_its_newest_reading_came_from_whatever_comes_late() -> None:
    table = DeviceTable()
    seen(table, "meter", "gw-1", newest=NOW - 60_000)
    assert shown(table, "meter") == ("gw-1", "online", [])
    seen(table, "meter", "gw-2", newest=NOW)
    assert shown(table, "meter") == ("gw-2", "online", ["gw-1"])
    late = seen(table, "meter", "gw-1", newest=NOW - 30_000, at=NOW + 5000)
    assert late is None, "what the first one had kept moves nothing"
    assert shown(table, "meter") == ("gw-2", "online", ["gw-1"])
    seen(table, "meter", "gw-1", newest=NOW + 6000, at=NOW + 6000)
    assert shown(table, "meter") == ("gw-1", "online", ["gw-2"]), "it went back"


def test_the_rows_in_any_order_say_the_same() -> None:
    """As a server reads them that starts later: the topic keeps the last row of each way."""
    for order in (("gw-1", "gw-2"), ("gw-2", "gw-1")):
        table = DeviceTable()
        for via in order:
            seen(table, "meter", via, newest=NOW - 1000 * (via == "gw-1"))
        assert shown(table, "meter") == ("gw-2", "online", ["gw-1"])


def test_when_a_gateway_goes_its_things_are_silent_at_once_and_the_reason_is_told() -> None:
    table = DeviceTable()
    says(table, "gw-1")
    for thing in ("meter-1", "meter-2"):
        seen(table, thing, "gw-1", newest=NOW)
    seen(table, "other", "gw-2", newest=NOW)
    assert look(table, NOW) == []
    says(table, "gw-1", DeviceState.OFFLINE, at=NOW + 1)
    why = "its gateway gw-1 is offline"
    assert sorted(look(table, NOW + 2)) == [
        ("meter-1", "silent", why),
        ("meter-2", "silent", why),
    ]
    assert table.presences[DevicePresence.SILENT] == 2
    says(table, "gw-1", at=NOW + 3)
    assert sorted(look(table, NOW + 4)) == [("meter-1", "online", ""), ("meter-2", "online", "")]


def test_a_thing_that_said_that_it_leaves_is_offline_until_something_new_comes() -> None:
    table = DeviceTable()
    says(table, "gw-1")

    def plug(via: str, newest: int, *, is_offline: bool) -> object:
        row = DeviceSeen(
            device="plug", last_seen=newest, via=via, newest=newest, is_offline=is_offline
        )
        return table.put("plug", f"seen|{via}", row.to_json(), now=newest)

    plug("gw-1", NOW, is_offline=False)
    event = plug("gw-1", NOW + 1, is_offline=True)
    assert isinstance(event, dict)
    assert (event["state"], event["reason"]) == ("offline", "it said so by its gateway gw-1")
    says(table, "gw-1", DeviceState.OFFLINE, at=NOW + 2)
    assert look(table, NOW + 2) == [], "offline it stays, with its gateway or without"
    plug("gw-2", NOW + 3, is_offline=False)
    assert shown(table, "plug", NOW + 3) == ("gw-2", "online", ["gw-1"]), "it went elsewhere"


def test_a_thing_that_is_silent_while_its_gateway_talks_is_told() -> None:
    table = DeviceTable()
    says(table, "gw-1")
    seen(table, "meter", "gw-1", newest=NOW)
    later = NOW + PLAIN_SILENT_AFTER_MS + 5000
    says(table, "gw-1", at=later)
    (event,) = look(table, later)
    assert event[:2] == ("meter", "silent")
    assert event[2] == "its gateway gw-1 is there, and brought nothing of it for 65 s"


def test_a_gateway_of_many_things_that_goes_is_announced_in_several_looks() -> None:
    table = DeviceTable()
    says(table, "gw-1")
    count = 3 * LOOKED_AT_MAX + 7
    for n in range(count):
        seen(table, f"meter-{n}", "gw-1", newest=NOW)
    for n in range(3):  # it comes and goes: nothing of that is kept
        says(table, "gw-1", DeviceState.OFFLINE, at=NOW + 2 * n + 1)
        assert len(look(table, NOW + 2 * n + 1)) == count
        says(table, "gw-1", at=NOW + 2 * n + 2)
        assert len(look(table, NOW + 2 * n + 2)) == count
    assert len(table._quiet_at) <= count + 1
    assert table._to_look_at == {}


def test_ways_are_bounded_and_all_its_rows_can_be_forgotten() -> None:
    table = DeviceTable()
    for n in range(WAYS_MAX + 3):
        seen(table, "meter", f"gw-{n}", newest=NOW + n)
    via, _, former = shown(table, "meter")
    assert (via, len(former)) == (f"gw-{WAYS_MAX + 2}", WAYS_MAX - 1)
    assert "gw-0" not in former
    keys = table.keys_of("meter")
    assert len(keys) == 3 + WAYS_MAX
    for key in keys:
        device, _, what = key.partition("|")
        table.put(device, what, None, now=NOW)
    assert "meter" not in table
    assert table._things == {}


def test_gateways_that_speak_for_a_thing_by_turns_are_named_and_a_move_is_not() -> None:
    table = DeviceTable()
    for step, via in enumerate(("gw-1", "gw-2", "gw-1")):
        seen(table, "moves", via, newest=NOW + 5000 * step, at=NOW + 5000 * step)
    seen(table, "moves", "gw-2", newest=NOW - 100_000, at=NOW + 15_000)  # what it had kept
    for step, via in enumerate(("gw-1", "gw-2", "gw-2", "gw-1", "gw-2")):
        seen(table, "claimed", via, newest=NOW + 5000 * step, at=NOW + 5000 * step)
    assert table.contested.now(NOW + 21_000) == {"claimed": ["gw-1", "gw-2"]}
    (problem,) = device_problems(0, (), table.contested.now(NOW + 21_000))
    assert problem.text.startswith("claimed: the gateways gw-1 and gw-2 send for it at once")
    assert table.contested.now(NOW + 61_000) == {}, "it is over"
    for step in range(4):
        at = NOW + 70_000 + 5000 * step
        seen(table, "claimed", f"gw-{1 + step % 2}", newest=at, at=at)
    assert list(table.contested.now(NOW + 86_000)) == ["claimed"], "it goes on"
    table.remove("claimed")
    assert table.contested.now(NOW + 86_000) == {}
