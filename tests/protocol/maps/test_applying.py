"""What a map file may say, and what becomes of messages by it."""

from __future__ import annotations

import textwrap
from typing import Any

import orjson
import pytest

from edgewake.protocol.errors import ConfigError, Rejected, RejectReason
from edgewake.protocol.maps.applying import Outcome, apply
from edgewake.protocol.maps.compiling import compile_maps
from edgewake.protocol.maps.rule import READINGS_MAX, Maps

NOW_MS = 1_790_000_000_000
HEAD = '[[map]]\ntopic = "a/{device}"\ndevice = "{device}"\nstream = "s"\n'


def maps(text: str, **keys: Any) -> Maps:
    return compile_maps(textwrap.dedent(text), "m.toml", **keys)


def of(text: str, payload: object, topic: str = "a/d1", prefix: str = "") -> Outcome:
    """By a map with this after its head."""
    data = payload if isinstance(payload, bytes) else orjson.dumps(payload)
    return apply(maps(HEAD + text), topic, data, NOW_MS, prefix=prefix)


def body(text: str, payload: object, topic: str = "a/d1") -> dict[str, Any]:
    outcome = of(text, payload, topic)
    assert not outcome.refused, outcome
    (reading,) = outcome.readings
    return reading.body


def test_a_reading_has_its_device_stream_time_fields_and_tags() -> None:
    outcome = of(
        """\
        time = { path = "at.utc", format = "s" }
        ignore = ["noise.*"]
        tags = { room = "{device}-{$.place}" }
        [map.fields]
        "inner.temp" = { name = "temperature", as = "number", scale = 0.1, unit = "Cel" }
        "relays.*" = "relay_*"
        """.replace("        ", ""),
        {
            "at": {"utc": 1_790_000_000},
            "inner": {"temp": "215", "hum": 48},
            "relays": {"a": True, "b": False},
            "noise": {"x": 1, "y": 2},
            "place": "hall",
        },
    )
    (reading,) = outcome.readings
    assert (reading.device, reading.stream) == ("d1", "s")
    assert reading.body == {
        "at": {},
        "inner": {"hum": 48},
        "relays": {},
        "noise": {},
        "place": "hall",
        "t": 1_790_000_000_000,
        "temperature": 21.5,
        "relay_a": True,
        "relay_b": False,
        "room": "d1-hall",
    }


def test_a_list_is_taken_apart_and_a_wrong_item_costs_itself() -> None:
    outcome = of(
        'each = "list"\ntime = { path = "ts", unreadable = "refuse" }\ntags = { nr = "{key}" }\n'
        '[map.fields]\n"$.gateway" = "gateway"\n',
        {
            "gateway": "g",
            "list": [{"ts": 1_790_000_000, "v": 1}, {"ts": "when?", "v": 2}, [3], {"v": 4}],
        },
    )
    assert [one.body for one in outcome.readings] == [
        {"v": 1, "t": 1_790_000_000_000, "gateway": "g", "nr": "0"}
    ]
    assert [one.why.reason for one in outcome.refused] == [
        RejectReason.TIME, RejectReason.SHAPE, RejectReason.TIME,
    ]  # fmt: skip
    assert outcome.refused[0].item["v"] == 2


def test_lists_in_lists_are_taken_apart_each_item_with_its_own_time() -> None:
    text = 'each = "blocks[*].rows[*]"\ntime = "at"\ntags = { block = "{outer}", row = "{key}" }\n'
    blocks = [
        {"rows": [{"at": 1_790_000_000, "v": 1}, {"at": 1_790_000_001, "v": 2}]},
        {"rows": []},
        {"rows": [{"at": "2026-09-21T14:13:22Z", "v": 3}, [4]]},
    ]
    outcome = of(text, {"blocks": blocks})
    assert [one.body for one in outcome.readings] == [
        {"v": 1, "t": 1_790_000_000_000, "block": "0", "row": "0"},
        {"v": 2, "t": 1_790_000_001_000, "block": "0", "row": "1"},
        {"v": 3, "t": 1_790_000_002_000, "block": "2", "row": "0"},
    ]
    assert [(one.item, one.why.reason) for one in outcome.refused] == [([4], RejectReason.SHAPE)]


def test_a_condition_tells_objects_lists_and_values_apart() -> None:
    text = HEAD + 'when = { path = "$", kind = "object" }\n'
    text += HEAD + 'when = { path = "$", kind = "list" }\nname = "many"\n'
    text += HEAD + 'when = { path = "$", kind = "value" }\nvalue = "power"\n'
    found = maps(text)

    def by(payload: bytes) -> list[dict[str, Any]]:
        return [one.body for one in apply(found, "a/d", payload, NOW_MS).readings]

    assert by(b'{"v": 1}') == [{"v": 1}]
    assert by(b'[{"v": 1}, {"v": 2}]') == [{"v": 1}, {"v": 2}]
    assert by(b"21.5") == [{"power": 21.5}]
    assert by(b"single") == [{"power": "single"}]
    for wrong in ('{ path = "$", kind = "number" }', '{ part = "device", kind = "value" }'):
        with pytest.raises(ConfigError, match="expected object, list, value, of a `path`"):
            maps(HEAD + f"when = {wrong}\n")


@pytest.mark.parametrize("at", ["1970-01-01T00:00:08", 8, "8", 3_600_000])
def test_a_clock_that_was_not_set_says_no_time(at: object) -> None:
    """Devices without a battery begin in 1970 and send before they know better."""
    outcome = of('time = "at"\n', {"at": at, "v": 1})
    assert [(one.body, outcome.remarks) for one in outcome.readings] == [
        ({"at": at, "v": 1}, ["no time in at"])
    ]
    refused = of('time = { path = "at", unreadable = "refuse" }\n', {"at": at, "v": 1})
    assert [one.why.reason for one in refused.refused] == [RejectReason.TIME]


def test_an_object_is_taken_apart_too_with_its_names_as_key() -> None:
    outcome = of(
        'each = "sensors"\ntags = { sensor = "{key}" }\n', {"sensors": {"a": {"v": 1}, "b": 2}}
    )
    assert [one.body for one in outcome.readings] == [
        {"v": 1, "sensor": "a"},
        {"value": 2, "sensor": "b"},
    ]


def test_a_message_of_too_many_readings_loses_those_past_the_bound_and_says_how_many() -> None:
    outcome = of("", [{"v": n} for n in range(READINGS_MAX + 7)])
    assert len(outcome.readings) == READINGS_MAX
    assert [(one.why.reason, one.readings) for one in outcome.refused] == [
        (RejectReason.OVERSIZE, 7)
    ]


def test_a_value_of_another_type_costs_itself_and_stands_beside() -> None:
    found = body('[map.fields]\nv = { name = "v", as = "number" }\n', {"v": "warm", "w": 1})
    assert found == {"w": 1, "v": None, "v_odd": "warm"}
    outcome = of('[map.fields]\nv = { name = "v", as = "number" }\n', {"v": "warm"})
    assert outcome.remarks == ["odd in v"]


def test_values_are_words_that_become_others() -> None:
    text = '[map.fields]\nvalue = { name = "on", values = { Online = true }, as = "boolean" }\n'
    assert body(f'payload = "text"\nothers = "drop"\n{text}', b"Online") == {"on": True}


def test_maps_are_tried_in_order_and_their_conditions_decide() -> None:
    found = maps(
        """
        [[map]]
        topic = "x/{device}/event/{event}"
        when = { part = "event", in = ["up"] }
        device = "{device}"
        stream = "up"
        [[map]]
        topic = "x/{device}/event/{event}"
        when = [{ path = "level", exists = true }, { path = "level", not = "debug" }]
        device = "{device}"
        stream = "log"
        [[map]]
        topic = "x/#"
        ignore = true
        """
    )
    assert found.filters == ("x/#",)
    streams = [
        [one.stream for one in apply(found, topic, payload, NOW_MS).readings]
        for topic, payload in [
            ("x/d/event/up", b'{"v":1}'),
            ("x/d/event/log", b'{"level":"error"}'),
            ("x/d/event/log", b'{"level":"debug"}'),
            ("x/d/event/log", b"{}"),
            ("x/other", b"\xff"),
        ]
    ]
    assert streams == [["up"], ["log"], [], [], []]


def test_a_part_of_the_topic_says_the_unit_of_a_message_that_is_one_value() -> None:
    found = maps(
        """\
        [[map]]
        topic = "a/{device}/{kind}/{sub}"
        device = "{device}"
        stream = "s"
        value = "{kind}"
        [map.value_units]
        kind = { power = "W" }
        sub = { peak = "kW" }
        """
    )
    units = {
        (topic, payload): apply(found, topic, payload, NOW_MS).readings[0].units
        for topic in ("a/d/power/peak", "a/d/state/peak", "a/d/state/x")
        for payload in (b"3", b'{"power": 3}')
    }
    assert units == {
        ("a/d/power/peak", b"3"): {"power": "W"},
        ("a/d/power/peak", b'{"power": 3}'): {},
        ("a/d/state/peak", b"3"): {"state": "kW"},
        ("a/d/state/peak", b'{"power": 3}'): {},
        ("a/d/state/x", b"3"): {},
        ("a/d/state/x", b'{"power": 3}'): {},
    }


def test_a_condition_asks_whether_there_is_any_by_a_path_with_stars() -> None:
    head = 'when = { path = "nodes.*.parts.*", exists = %s }\n'
    full, bare = {"nodes": {"a": {}, "b": {"parts": {"x": 1}}}}, {"nodes": {"a": {"parts": {}}}}
    taken = {
        (there, number): bool(of(head % there, one).readings)
        for there in ("true", "false")
        for number, one in enumerate((full, bare))
    }
    assert taken == {("true", 0): True, ("true", 1): False, ("false", 0): False, ("false", 1): True}


def test_names_that_mean_something_to_an_intake_are_fields_of_the_device() -> None:
    found = body(
        'time = "ts"\n', {"device": "other", "seq": 7, "epoch": 1, "t": "x", "ts": 1_790_000_000}
    )
    assert found == {"device_": "other", "seq_": 7, "epoch_": 1, "t_": "x", "t": 1_790_000_000_000}


def test_a_field_that_a_map_gives_replaces_no_value_of_the_message() -> None:
    tagged = 'tags = { room = "hall" }\n'
    assert body(tagged, {"room": 2, "v": 1}) == {"room": "hall", "room_": 2, "v": 1}
    assert body(tagged, {"room": "hall", "v": 1}) == {"room": "hall", "v": 1}
    named = '[map.fields]\n"inner.x" = "x"\n"*" = "*"\n'
    assert body(named, {"x": 1, "inner": {"x": 2}})["x"] == 2
    assert body(named, {"x": 1, "inner": {"x": 2}})["x_"] == 1
    timed = 'time = "at"\n'
    found = body(timed, {"at": 1_790_000_000, "t": 21.5, "t_": 3})
    assert found == {"t": 1_790_000_000_000, "t_": 3, "t__": 21.5}
    assert body("", {"device": "x", "device_": "y"}) == {"device__": "x", "device_": "y"}


def test_the_time_is_found_by_names_and_looks_where_it_is_said() -> None:
    assert (
        body('time = "auto"\n', {"v": 1, "last_seen": "2026-01-01T10:00:00Z"})["t"] == 1767261600000
    )


def test_a_time_that_cannot_be_read_is_now_and_said() -> None:
    outcome = of('time = "ts"\n', {"v": 1, "ts": "yesterday"})
    assert "t" not in outcome.readings[0].body
    assert outcome.remarks == ["no time in ts"]


def test_times_without_a_zone_are_of_the_files_zone() -> None:
    found = maps(f'zone = "Europe/Berlin"\n{HEAD}time = "ts"\n')
    (reading,) = apply(found, "a/d", b'{"v":1,"ts":"2026-01-01T10:00:00"}', NOW_MS).readings
    assert reading.body["t"] == 1767258000000


@pytest.mark.parametrize(
    ("kind", "payload", "found"),
    [
        ("auto", b"21.5", [{"value": 21.5}]),
        ("auto", b"warm", [{"value": "warm"}]),
        ("auto", b"nan", [{"value": None}]),
        ("auto", b'\xef\xbb\xbf{"v":1}', [{"v": 1}]),
        ("text", b"21.5", [{"value": "21.5"}]),
        ("number", "21,5 °C".encode(), [{"value": 21.5}]),
        ("lines", b'{"v":1}\n\n{"v":2}\n', [{"v": 1}, {"v": 2}]),
        ("json", b'{"v":NaN}', [{"v": None}]),
    ],
)
def test_payloads_are_read_by_their_kind(kind: str, payload: bytes, found: list[object]) -> None:
    outcome = of(f'payload = "{kind}"\n', payload)
    assert [one.body for one in outcome.readings] == found


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        ("json", b"warm", RejectReason.JSON),
        ("auto", b"{'v':1}", RejectReason.JSON),
        ("auto", b"\xff\xfe", RejectReason.ENCODING),
        ("number", b"warm", RejectReason.SHAPE),
        ("lines", b"{", RejectReason.JSON),
        ("json", b"[[1]]", RejectReason.SHAPE),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(
    kind: str, payload: bytes, reason: RejectReason
) -> None:
    outcome = of(f'payload = "{kind}"\n', payload)
    assert not outcome.readings
    assert [one.why.reason for one in outcome.refused] == [reason]


def test_csv_has_columns_and_may_repeat_its_header() -> None:
    text = 'payload = "csv"\ncolumns = ["ts", "v", "name"]\nseparator = ";"\n'
    outcome = of(text, b'ts;v;name\n1790000000;2;"a;b"\n1790000001;;c\n')
    assert [one.body for one in outcome.readings] == [
        {"ts": 1790000000, "v": 2, "name": "a;b"},
        {"ts": 1790000001, "v": None, "name": "c"},
    ]


def test_an_empty_message_clears_what_is_retained_and_is_ignored() -> None:
    assert of("", b"")[1:] == ((), (), ())


def test_a_topic_without_a_map_is_refused() -> None:
    assert of("", {"v": 1}, "b/d").refused[0].why.reason is RejectReason.TOPIC


@pytest.mark.parametrize(
    ("presence", "payload", "is_there"),
    [
        ('"x"', b"true", True),
        ('"x"', b"false", False),
        ('"x"', b"1", None),
        ('{ field = "x", online = ["up"], offline = ["down", "lost"] }', b"up", True),
        ('{ field = "x", online = ["up"], offline = ["down", "lost"] }', b"lost", False),
        ('{ field = "x", online = ["up"], offline = ["down", "lost"] }', b"init", None),
    ],
)
def test_a_field_may_say_whether_the_device_is_there(
    presence: str, payload: bytes, is_there: bool | None
) -> None:
    text = f'[[map]]\ntopic = "a"\ndevice = "d"\nstream = "s"\nvalue = "x"\npresence = {presence}\n'
    (one,) = apply(compile_maps(text), "a", payload, 0).readings
    assert one.is_there is is_there


@pytest.mark.parametrize(
    ("when", "taken"),
    [
        ("is = true", [True]),
        ("is = false", [False]),
        ("not = true", [False, 1, "true", None]),
        ("in = [false, 1]", [False, 1]),
    ],
)
def test_a_condition_may_be_true_or_false(when: str, taken: list[object]) -> None:
    """`is = true` was refused: "expected , found true"."""
    text = f'when = {{ path = "on", {when} }}\n'
    values: list[object] = [True, False, 1, "true", None]
    assert [one for one in values if of(text, {"on": one, "x": 1}).readings] == taken


def test_a_value_that_two_rules_give_is_one_once_it_is_converted() -> None:
    """`21.5` as text beside 21.5 was a second field."""
    text = '[map.fields]\n"a" = { name = "x", as = "number" }\n"b" = { name = "x", as = "number" }'
    assert body(text, {"a": 21.5, "b": "21.5"}) == {"x": 21.5}
    assert body(text, {"a": 21.5, "b": "22"}) == {"x": 21.5, "x_": 22}
    assert body(text, {"a": 21.5, "b": "eh"}) == {"x": 21.5, "x_odd": "eh"}
    assert body(text, {"a": "eh", "b": 3}) == {"x": 3, "x_odd": "eh"}


def test_the_text_of_an_odd_value_takes_no_other_fields_place() -> None:
    text = '[map.fields]\n"a" = "x_odd"\n"b" = { name = "x", as = "number" }'
    assert body(text, {"a": 1, "b": "eh"}) == {"x_odd": 1, "x": None, "x_odd_": "eh"}


def test_attributes_of_an_event_cost_a_map_nothing_that_reads_something_else() -> None:
    """They were read before any map was asked, and what could not be was refused."""

    def broken() -> dict[str, Any] | None:
        raise Rejected(RejectReason.JSON, "no JSON")

    outcome = apply(maps(HEAD + 'payload = "number"'), "a/d1", b"21.5", NOW_MS, event=broken)
    assert [one.body for one in outcome.readings] == [{"value": 21.5}]
    event = apply(maps(HEAD + 'payload = "cloudevents"'), "a/d1", b"21.5", NOW_MS, event=broken)
    assert [one.why.reason for one in event.refused] == [RejectReason.JSON], "the control"
