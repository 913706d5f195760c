"""Which queries run."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from edgewake.cloud.queries import registry
from edgewake.cloud.queries.query import Query
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.registry import Registry, statuses
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.stream import FieldInfo, NameKind, Stream, StreamTable
from edgewake.protocol.ops.query import QueryState, Registration

TEXT = "-- name: {}\nSELECT max({}) AS a FROM {} GROUP BY window(event_time, '1 minute')"


def tables(*registrations: Registration, **fields: FieldType) -> Registry:
    stream = Stream(name="s", fields={name: FieldInfo(type=kind) for name, kind in fields.items()})
    return Registry({one.name: one for one in registrations}, StreamTable(s=stream))


def registration(
    name: str = "q", field: str = "x", stream: str = "s", *, at: int = 1, paused: bool = False
) -> Registration:
    return Registration(
        name=name, text=TEXT.format(name, field, stream), registered_at=at, paused=paused
    )


def state(
    found: Registry, failed: dict[str, str] | None = None, name: str = "q"
) -> tuple[QueryState, str]:
    one = statuses(found, failed or {})[name]
    return one.state, one.detail


def test_a_query_over_a_known_stream_runs() -> None:
    assert state(tables(registration(), x=FieldType.NUMBER)) == (QueryState.RUNNING, "")


def test_a_query_waits_for_its_stream() -> None:
    found, detail = state(tables(registration(stream="later")))
    assert found is QueryState.STARTING
    assert detail.startswith("waits for stream 'later'")


def test_a_refused_query_runs_when_its_field_appears() -> None:
    assert state(tables(registration()))[0] is QueryState.REFUSED
    assert state(tables(registration(), x=FieldType.NUMBER))[0] is QueryState.RUNNING


def test_a_paused_query_does_not_run() -> None:
    assert state(tables(registration(paused=True), x=FieldType.NUMBER))[0] is QueryState.PAUSED


def test_a_failed_query_stays_out_until_it_is_registered_anew() -> None:
    failed = {"q@1": "why"}
    assert state(tables(registration(), x=FieldType.NUMBER), failed) == (QueryState.FAILED, "why")
    assert state(tables(registration(at=2), x=FieldType.NUMBER), failed)[0] is QueryState.RUNNING


def test_a_registration_under_another_name_than_its_header_is_refused() -> None:
    found = tables(registration().model_copy(update={"name": "other"}), x=FieldType.NUMBER)
    assert state(found, name="other")[0] is QueryState.REFUSED


def test_more_queries_than_a_stream_bears_are_refused_youngest_first() -> None:
    many = [registration(f"q{i}", at=i) for i in range(registry.QUERIES_PER_STREAM_MAX + 1)]
    found = statuses(tables(*many, x=FieldType.NUMBER), {})
    assert [name for name, one in found.items() if one.state is QueryState.REFUSED] == [
        many[-1].name
    ]


def test_a_removed_query_is_gone_and_a_removed_stream_makes_its_queries_wait() -> None:
    found = tables(registration(), x=FieldType.NUMBER)
    found.on_stream("s", None)
    assert state(found)[0] is QueryState.STARTING
    found.on_query("q", None)
    assert statuses(found, {}) == {}


def test_a_file_is_read_again_only_when_it_or_the_streams_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def parsed(text: str, streams: Mapping[str, Stream]) -> Query:
        read.append(text)
        return parse(text, streams)

    monkeypatch.setattr(registry, "parse", parsed)
    one, other = registration("one"), registration("other", field="y")
    found = tables(one, other, x=FieldType.NUMBER)
    assert [state(found, name=name)[0] for name in ("one", "other")] == [
        QueryState.RUNNING,
        QueryState.REFUSED,
    ]
    found.on_stream(
        "third", Stream(name="third", kind=NameKind.QUERY, claim="c").model_dump_json().encode()
    )
    found.on_query("third", registration("third").model_dump_json().encode())
    assert state(found, name="third")[0] is QueryState.RUNNING
    assert read == [one.text, other.text, registration("third").text]
    fields = dict.fromkeys(("x", "y"), FieldInfo(type=FieldType.NUMBER))
    found.on_stream("s", Stream(name="s", fields=fields).model_dump_json().encode())
    assert state(found, name="other")[0] is QueryState.RUNNING
    assert state(found, {"other@1": "why"}, "other")[0] is QueryState.FAILED
    found.on_query("one", registration("one", field="z").model_dump_json().encode())
    assert state(found, name="one")[0] is QueryState.REFUSED
