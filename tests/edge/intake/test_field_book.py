"""What a device knows of fields: an odd value costs itself, names and types stay as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.commands.cli import agent
from edgewake.edge.config import AgentConfig
from edgewake.edge.intake.field_book import (
    TIME_WAYS_MAX,
    FieldBook,
    fields_said,
    times_said,
)
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.tables.bundle import Bundle
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.config import parse
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.frames.event_time import TimeRule
from edgewake.protocol.frames.field_names import with_suffix
from edgewake.protocol.frames.field_type import FieldType, types_of
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.ops.device import ARRIVAL, FIELDS_BYTES_MAX, TIMES_BYTES_MAX
from tests.edge.sources.sink import MemorySink
from tests.services import free_ports, part, port_is_open, wait_until

NOW_MS = 1_790_000_000_000


def intake(
    sink: MemorySink | None = None, book: FieldBook | None = None, **declared: FieldType
) -> Intake:
    book = book or FieldBook(None, declared)
    return Intake(
        "test",
        sink or MemorySink(),
        Policy.BLOCK,
        FakeClock(NOW_MS),
        book=book,
        book_name="fields:s",
    )


def fields(one: Intake, *bodies: dict[str, Any]) -> list[dict[str, Scalar]]:
    return [reading[1] for body in bodies if (reading := one.check(body)) is not None]


def test_an_odd_value_is_null_and_stands_beside_its_field_and_all_else_goes_on() -> None:
    """`nan` of one room stopped the readings of all others, without end."""
    one = intake()
    assert fields(
        one,
        {"room": "hall", "v": 21.5},
        {"room": "hall", "v": "warm"},
        {"room": "bath", "v": 18.1},
        {"room": "bath", "v": True},
    ) == [
        {"room": "hall", "v": 21.5},
        {"room": "hall", "v": None, "v_odd": "warm"},
        {"room": "bath", "v": 18.1},
        {"room": "bath", "v": None, "v_odd": "True"},
    ]
    assert (one.remarks, one.refused) == ({"odd in v": 2}, {})


@pytest.mark.parametrize("word", ["unavailable", "N/A", "unknown", "none", " nan ", ""])
def test_a_word_for_no_value_tells_no_type(word: str) -> None:
    """A sensor that was away when the agent began had `temp_odd` in every reading, for ever."""
    one = intake()
    assert fields(one, {"temp": word, "n": 1}, {"temp": 21.5, "n": 2}) == [
        {"temp": None, "n": 1},
        {"temp": 21.5, "n": 2},
    ]
    assert (one.remarks, one.refused) == ({}, {})


def test_many_at_once_learn_no_type_of_a_word_for_no_value() -> None:
    one = intake()
    words = ["unavailable", *(f"at {n}" for n in range(9))]
    found = one.check_all([{"state": word} for word in words])
    assert [reading[1]["state"] for reading in found] == [None, *words[1:]]


def test_a_declared_text_may_be_such_a_word() -> None:
    assert fields(intake(state=FieldType.STRING), {"state": "unknown"}) == [{"state": "unknown"}]


def test_a_declared_field_takes_what_devices_write_for_it() -> None:
    one = intake(value=FieldType.NUMBER)
    bodies = [{"value": value, "kind": "k"} for value in ("ON", "21.5 °C", "nan", True, 7, "soon")]
    assert [each.get("value") for each in fields(one, *bodies)] == [1, 21.5, None, 1, 7, None]
    assert one.remarks == {"odd in value": 1}
    both = intake(**{"*": FieldType.STRING, "n": FieldType.NUMBER})
    assert fields(both, {"n": "1", "s": 2}) == [{"n": 1, "s": "2"}]


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(-1, 1)
    | st.sampled_from(["", "x", "nan", "1"])
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "c-d", "c_d", "mode"]), VALUES, min_size=1),
        min_size=1,
        max_size=40,
    )
)
def test_whatever_comes_every_field_has_one_type_and_many_at_once_are_what_they_are_one_by_one(
    bodies: list[dict[str, Any]],
) -> None:
    one, many = intake(), intake()
    found = fields(one, *bodies)
    assert [reading[1] for reading in many.check_all(bodies)] == found
    assert (many.remarks, many.refused) == (one.remarks, {})
    names = {name for each in found for name in each}
    # Raises TypeError where one mixes.
    types_of({name: [each.get(name) for each in found] for name in names})


def test_many_alike_are_a_bundle_and_one_of_another_type_is_not() -> None:
    one = intake()
    bodies = [{"n": n, "s": "x", "none": None} for n in range(20)]
    assert isinstance(one.check_all(bodies), Bundle)
    assert isinstance(one.check_all(bodies), Bundle)
    odd = one.check_all([body | {"n": "x"} for body in bodies])
    assert [reading[1]["n"] for reading in odd] == [None] * 20
    assert one.remarks == {"odd in n": 20}


async def test_names_and_types_are_in_the_log_before_the_readings_that_have_them_and_once() -> None:
    sink = MemorySink()
    one = intake(sink)
    for body in ({"a-b": 1, "c": "x"}, {"a-b": 2, "c": "y"}, {"a_b": 3}):
        await one.put([reading for reading in [one.check(body)] if reading is not None])
    assert [(count, position is not None) for count, position in sink.commits] == [
        (0, True),
        (1, False),
        (1, False),
        (0, True),
        (1, False),
    ]
    assert one.counts()["names"]["a_b"] == "a-b"
    again = intake(book=FieldBook(sink.positions[-1]))
    assert fields(again, {"a_b": 1, "c": 5, "a-b": "x"}) == [
        again_of(sink) | {"c": None, "a_b": None, "a_b_odd": "x", "c_odd": "5"}
    ]


def again_of(sink: MemorySink) -> dict[str, Scalar]:
    """What the third reading had."""
    (name,) = sink.readings[2][1]
    return {name: 1}


@pytest.mark.parametrize(
    "kept", [None, "", "x", "[]", "5", '{"a": 5}', '{"a": ["b"]}', '{"a": ["b", "?"]}']
)
def test_a_book_that_cannot_be_read_is_a_new_one(kept: str | None) -> None:
    book = FieldBook(kept)
    assert book.sound({"v": 1}) == ({"v": 1}, [])
    assert orjson.loads(book.encode()) is not None


def test_an_agent_keeps_names_and_types_over_a_restart(tmp_path: Path) -> None:
    port, nobody = free_ports(2)
    path = tmp_path / "agent.toml"
    path.write_text(
        f'device = "d"\ndata_dir = "{tmp_path}/data"\n[mqtt]\nport = {nobody}\n[[source]]\ntype = '
        f'"http_intake"\nstream = "s"\nport = {port}\nfields = {{ on = "boolean" }}\n'
    )
    for life, body in enumerate(
        ([{"a-b": 1, "on": "OFF"}, {"a-b": "x"}], [{"a_b": "y", "a-b": "warm"}])
    ):
        with part("agent", path, tmp_path / f"out{life}") as running:
            running.wait_for('"event":"part.ready"')
            wait_until(lambda: port_is_open(port), "the port")
            assert httpx.post(f"http://127.0.0.1:{port}/", json=body).json() == {
                "taken": len(body),
                "refused": 0,
            }
            assert running.stop() == 0
    shown = CliRunner().invoke(agent, ["log", "export", "--config", str(path)])
    found = map(orjson.loads, shown.stdout.splitlines())
    rows = [
        {name: value for name, value in one.items() if name.startswith(("a_b", "on"))}
        for one in found
    ]
    assert rows == [
        {"a_b": 1, "on": False},
        {"a_b_odd": "x"},
        {with_suffix("a_b"): "y", "a_b_odd": "warm"},
    ]
    said = CliRunner().invoke(agent, ["status", "--config", str(path)]).stdout
    assert "1 odd in a_b" in said
    assert "'a-b' is a_b" in said


def test_names_of_ones_choice_hold_for_flat_and_nested_fields_also_in_bundles() -> None:
    wanted = {"event.time": "starts_at", "speed": "v", "venue.id": "thing"}
    one = intake(book=FieldBook(None, {}, wanted))
    bodies = [
        {"event": {"time": 5, "name": "x"}, "speed": 1.5, "venue": {"id": "hall"}},
        {"speed": 2.5, "other": 1},
    ]
    expected = [
        {"starts_at": 5, "event_name": "x", "v": 1.5, "thing": "hall"},
        {"v": 2.5, "other": 1},
    ]
    assert fields(one, *bodies) == expected
    flat = [{"speed": 1.0}, {"speed": 2.0}]
    bundle = one.bundle(flat)
    found = [one.reading(body) for body in flat] if bundle is None else list(bundle)
    assert [dict(reading[1]) for reading in found] == [{"v": 1.0}, {"v": 2.0}]


def test_the_cloud_is_told_original_names_and_units_within_a_bound() -> None:
    book = FieldBook()
    one = intake(book=book)
    fields(one, {"DS18B20-1": 1, "plain": 2})
    one.note_units({"plain": "m", "DS18B20-1": "Cel"})
    one.note_words({"plain": {"unit": "km", "label": "Way", "classes": "x" * 65, "other": "x"}})
    plain = {"unit": "m", "label": "Way"}
    said = {"DS18B20_1": {"path": "DS18B20-1", "unit": "Cel"}, "plain": plain}
    assert fields_said({"s": book, "none": FieldBook()}) == {"s": said}
    many = FieldBook(None, {}, {f"field-{n}": f"field_{n}" for n in range(500)})
    found = fields_said({"s": many})
    assert 10 < len(found["s"]) < 100
    assert len(orjson.dumps(found)) <= FIELDS_BYTES_MAX


@pytest.mark.parametrize("at_once", [False, True])
def test_how_times_were_found_is_counted_however_readings_come(at_once: bool) -> None:
    auto, plain = FieldBook(), FieldBook()
    clock = FakeClock(NOW_MS)
    rules = ((auto, TimeRule("auto")), (plain, TimeRule()))
    read = [
        Intake("test", MemorySink(), Policy.BLOCK, clock, time=rule, book=book)
        for book, rule in rules
    ]
    at = 1_790_000_000
    bodies = [{"ts": at + n, "v": n} for n in range(9)] + [{"v": n} for n in range(8)]
    for one in read:
        if at_once:
            one.check_all(bodies)
        else:
            assert all(map(one.check, bodies))
    seconds, ms, odd = {"t": at, "v": 1}, {"t": at * 1000, "v": 1}, {"t": 21, "v-1": 1}
    for body in (seconds, ms, odd):
        assert read[1].check(body)
    books = {"a": auto, "b": plain, "none": FieldBook()}
    assert times_said(books) == {
        "a": {"ts (s)": 9, ARRIVAL: 8},
        "b": {"t (s)": 1, ARRIVAL: 18},
    }


def test_what_is_said_of_times_is_bounded() -> None:
    book = FieldBook()
    for n in range(20):
        book.timed(f"TIME{n} (s)")
    assert (len(book.times()), book.times()["others"]) == (TIME_WAYS_MAX + 1, 12)
    book.arrived = 3
    found = times_said({f"stream_{n}": book for n in range(50)})
    assert found is not None
    assert len(orjson.dumps(found)) <= TIMES_BYTES_MAX
    assert times_said({"s": FieldBook()}) is None


def test_a_name_that_is_chosen_later_is_taken_from_the_field_that_had_it() -> None:
    """Two fields of one name would be one; the other one gets a name of its own path."""
    before = intake(book=(book := FieldBook()))
    assert fields(before, {"v": 1, "speed": 2}) == [{"v": 1, "speed": 2}]
    after = intake(book=FieldBook(book.encode(), {}, {"speed": "v"}))
    assert fields(after, {"v": 1, "speed": 2}) == [{with_suffix("v"): 1, "v": 2}]


def test_one_stream_has_one_name_for_a_field() -> None:
    source = {"type": "exec", "stream": "s", "command": ["true"]}
    with pytest.raises(ConfigError, match="two fields get one name"):
        parse(AgentConfig, agent_of(source | {"rename": {"a": "x", "b": "x"}}), "agent.toml")
    two = [source | {"rename": {"a": name}} for name in ("x", "y")]
    with pytest.raises(ConfigError, match="two names for 'a'"):
        parse(AgentConfig, agent_of(*two), "agent.toml")
    with pytest.raises(ConfigError, match="name of the envelope"):
        parse(AgentConfig, agent_of(source | {"rename": {"a": "device"}}), "agent.toml")


def agent_of(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"device": "d", "data_dir": "/tmp/d", "source": list(sources)}


def test_the_text_of_an_odd_value_takes_no_other_fields_place() -> None:
    book = FieldBook()
    assert book.sound({"a": 1, "a_odd": 5}) == ({"a": 1, "a_odd": 5}, [])
    found, odd = book.sound({"a": "x", "a_odd": 7})
    assert (found, list(odd)) == ({"a": None, "a_odd": 7, "a_odd_": "x"}, ["a"])


def test_a_type_that_was_decided_in_the_cloud_is_known_and_kept_and_a_declared_one_stays() -> None:
    """An agent whose first value was a text wrote `x_odd` for ever."""
    book = FieldBook(None, {"mine": FieldType.STRING})
    book.sound({"x": "fast", "mine": "a"})
    book.kept()
    assert book.decide({"x": FieldType.NUMBER, "mine": FieldType.NUMBER}) == ["x"]
    assert book.has_news
    assert book.sound({"x": 3}) == ({"x": 3}, [])
    assert FieldBook(book.encode()).sound({"x": 3}) == ({"x": 3}, [])
    assert book.decide({"x": FieldType.NUMBER}) == []
