"""What a map file may say, and what becomes of messages by it."""

from __future__ import annotations

import textwrap
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.errors import ConfigError, RejectReason
from edgewake.protocol.maps.applying import Outcome, apply, device_of
from edgewake.protocol.maps.compiling import compile_maps
from edgewake.protocol.maps.names import device_name, stream_name
from edgewake.protocol.maps.path import Path
from edgewake.protocol.maps.rule import READINGS_MAX, Maps
from edgewake.protocol.maps.topic import Crossing, covers, matches, overlap, reduced

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


DOCUMENT = {"a": {"b": [{"c": 1}, {"c": 2}], "x.y": 3}, "n": 4}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("n", [("", 4)]),
        ("a.b[0].c", [("", 1)]),
        ("a.b[-1].c", [("", 2)]),
        ("a.b[*].c", [("0", 1), ("1", 2)]),
        ('a."x.y"', [("", 3)]),
        ("$.n", [("", 4)]),
        ("a.*", [("b", DOCUMENT["a"]["b"]), ("x.y", 3)]),  # type: ignore[index]
        ("a.b[2].c", []),
        ("n.m", []),
        ("a[0]", []),
    ],
)
def test_paths_lead_to_what_is_there(path: str, found: list[tuple[str, object]]) -> None:
    assert list(Path.parse(path).all(DOCUMENT)) == found


@pytest.mark.parametrize("text", ["", ".", "a..b", "a.", "a[x]", "a[", '"', ".a", "a.b" * 200])
def test_a_path_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="path"):
        Path.parse(text)


@pytest.mark.parametrize(
    ("pattern", "topic", "is_one"),
    [
        ("a/+/c", "a/b/c", True),
        ("a/+/c", "a/b/c/d", False),
        ("a/#", "a/b/c", True),
        ("a/#", "a", False),
        ("+/b", "$SYS/b", False),
        ("a/b", "a/b", True),
    ],
)
def test_filters_take_topics(pattern: str, topic: str, is_one: bool) -> None:
    assert matches(pattern, topic) is is_one


def test_filters_that_others_cover_are_not_needed() -> None:
    assert reduced(["a/+", "a/#", "b/c", "a/b/c", "b/c"]) == ("a/#", "b/c")
    assert covers("a/#", "a/+/c")
    assert not covers("a/+", "a/#")


def test_filters_that_cross_are_found() -> None:
    assert overlap("a/+", "+/b")
    assert not overlap("a/+/x", "a/+/y")
    assert list(Crossing(["a/+", "+/b", "c"]).numbered) == ["a/+"]


LEVELS = st.sampled_from(["a", "b", "c"])
FILTERS = st.lists(
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=3).flatmap(
        lambda one: st.sampled_from(["/".join(one), "/".join([*one, "#"])])
    ),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(FILTERS, st.lists(LEVELS, min_size=1, max_size=4).map("/".join))
def test_of_the_copies_of_a_message_exactly_one_is_taken(filters: list[str], topic: str) -> None:
    crossing = Crossing(filters)
    copies = [
        [number] if (number := crossing.numbered.get(one)) is not None else None
        for one in filters
        if matches(one, topic)
    ]
    taken = [one for one in copies if not crossing.is_repeat(topic, one)]
    assert len(taken) == (1 if copies else 0)
    together = [number for one in copies for number in one or ()]
    if copies and None not in copies:  # one message, with the numbers of all
        assert not crossing.is_repeat(topic, together)


def test_a_number_of_other_filters_than_now_proves_nothing() -> None:
    before, after = Crossing(["a/+", "+/b"]), Crossing(["a/+", "+/b", "#"])
    assert before.is_repeat("a/b", [before.numbered["a/+"]])
    assert not after.is_repeat("a/b", [before.numbered["a/+"]])


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


def test_names_that_mean_something_to_an_intake_are_fields_of_the_device() -> None:
    found = body(
        'time = "ts"\n', {"device": "other", "seq": 7, "epoch": 1, "t": "x", "ts": 1_790_000_000}
    )
    assert found == {"device_": "other", "seq_": 7, "epoch_": 1, "t_": "x", "t": 1_790_000_000_000}


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
    ("name", "legal"),
    [
        ("lamp-1", "lamp-1"),
        ("kitchen/lamp", "kitchen.lamp"),
        ("AA:BB:CC", "AA-BB-CC"),
        ("Küche Lampe", "Kueche_Lampe-62160530"),
    ],
)
def test_names_of_devices_are_made_legal(name: str, legal: str) -> None:
    assert device_name(name) == legal


def test_two_names_that_look_alike_stay_two() -> None:
    assert device_name("Küche 1") != device_name("Küche_1") != device_name("Kueche_1")
    assert len(device_name("ü" * 500)) <= 64
    assert stream_name("Living Room/Temp") == "living_room_temp"
    assert stream_name("1st") == "s_1st"


def test_names_may_be_given_and_have_a_prefix() -> None:
    found = maps(f'{HEAD}\n[devices]\n"d 1" = "hall"\n')
    assert apply(found, "a/d 1", b"1", NOW_MS, prefix="zb-").readings[0].device == "zb-hall"
    assert device_of(found, "a/d 1", "zb-") == "zb-hall"


def test_a_presets_base_may_be_another() -> None:
    text = 'base = "std"\n[[map]]\ntopic = "~/{device}"\n'
    found = maps('presets = [{ name = "p", base = "x/y" }]\n', load_preset=lambda _: text)
    assert found.filters == ("x/y/+",)
    assert maps('presets = ["p"]\n', load_preset=lambda _: text).filters == ("std/+",)


def test_the_version_changes_with_what_is_said() -> None:
    first, second = maps(HEAD), maps(HEAD + "# remark\n")
    assert len(first.version) == 12
    assert first.version != second.version
    assert first.version == maps(HEAD).version


WRONG = {
    'topic = "a/#/b"': "line 2: [[map]] 1: topic: #: expected alone, as the last level",
    'topic = "a/{x}"\ndevice = "{y}"': "unknown part {y}: the topic has x",
    'topic = "a"\nstrem = "s"': "line 3: [[map]] 1: strem: unknown key: did you mean 'stream'?",
    'topic = "a"\nstream = "Hall"': "'Hall': expected a legal name, e.g. 'hall'",
    'topic = "a"\npayload = "xml"': "payload: 'xml': expected one of auto, ",
    'topic = "a"\ntime = { path = "x", format = "%Q" }': "time.format: '%Q': expected auto",
    'topic = "a"\ntime = { path = "x", zone = "Mars" }': "time.zone: 'Mars': expected a time zone",
    'topic = "a"\n[map.fields]\n"a..b" = "x"': "line 4: [[map]] 1: fields.a..b",
    'topic = "a"\n[map.fields]\na = { as = "float" }': "expected number, text, string, boolean",
    'topic = "a"\n[map.fields]\na = { scale = "x" }': "expected a number, found 'x'",
    'topic = "a"\n[map.fields]\na = { as = "text", scale = 2 }': "only a number has scale",
    'topic = "a"\n[map.fields]\n"a.*" = "x"': "a path with * needs a name with *",
    'topic = "a"\nwhen = { path = "x" }': "expected one of `is`, `in`, `not`, `exists`",
    'topic = "a"\nwhen = { part = "x", is = 1 }': "when.part: 'x': expected one of none",
    'topic = "~/a"': "~ stands for `base`, which the file lacks",
    'topic = "$SYS/#"': "topics that begin with $ are the broker's own",
    'topic = "a"\npayload = "csv"': "columns: is missing",
    'topic = "a"\nothers = "some"': "others: 'some': expected keep or drop",
    'topic = 1': "topic: expected text, found '1'",
    'stream = "s"': "topic: is missing",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_refused_with_line_key_and_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigError) as said:
        maps(f"[[map]]\n{text}\n")
    assert str(said.value).startswith("m.toml: line ")
    assert WRONG[text] in str(said.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "expected at least one [[map]]"),
        ("map = 1", "map: expected a list"),
        ("[[map", "not TOML"),
        ('presets = ["tasmot"]', "did you mean 'tasmota'?"),
        ("presets = [1]", "presets: 1: expected"),
        ('[devices]\na = "b c"\n[[map]]\ntopic = "a"', "devices.a: 'b c': expected"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as said:
        maps(text)
    assert expected in str(said.value)


@pytest.mark.parametrize("topic", ["#", "+/#", "ew/v1/x/up/s", "+/+/+/status", "ew/{a}/{b...}"])
def test_at_a_bridge_no_map_takes_topics_of_edgewake_itself(topic: str) -> None:
    text = f'[[map]]\ntopic = "{topic}"\ndevice = "d"\nstream = "s"\n'
    maps(text)
    with pytest.raises(ConfigError, match="takes topics of Edgewake itself"):
        maps(text, needs_names=True)


def test_at_a_bridge_each_map_says_device_and_stream() -> None:
    with pytest.raises(ConfigError, match=r"device is missing.*\n.*stream is missing"):
        maps('[[map]]\ntopic = "a"\n', needs_names=True)


def test_every_wrong_map_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as said:
        maps('[[map]]\ntopic = "a"\nx = 1\n[[map]]\ntopic = "b"\ny = 1\n')
    assert len(str(said.value).splitlines()) == 2


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
    ("presence", "says"),
    [
        ('"no field"', "'no field': expected a field name"),
        ("{ online = [] }", "expected a field name"),
        ('{ field = "x", on = ["y"] }', "known are field, offline, online"),
        ('{ field = "x", online = [1] }', "expected a list of texts"),
        ("3", "expected text or a table"),
    ],
)
def test_a_presence_that_cannot_be_is_refused(presence: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compile_maps(f'[[map]]\ntopic = "a"\npresence = {presence}\n')
