"""What a payload is, by its content type and properties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cbor2
import orjson
import pytest

from edgewake.protocol.errors import Rejected
from edgewake.protocol.maps.contents import WithUnits, binary_event, has_items, items
from edgewake.protocol.maps.decoding import BadItem

NOW_MS = 1_790_000_000_000
AT = "2026-03-01T08:15:30Z"
AT_MS = 1_772_352_930_000
BINARY = [("specversion", "1.0"), ("id", "7"), ("source", "/shed"), ("type", "t"), ("time", AT)]
EVENT = dict(BINARY) | {"data": {"temp": 21.5}}


@pytest.mark.parametrize(
    ("payload", "content_type", "has_them"),
    [
        (b"[1]", None, True),
        (b"[1]", "", True),
        (b"[1]", "application/json", True),
        (b"[1]", "Application/JSON; charset=utf-8", True),
        (b"[1]", "application/vnd.api+json", True),
        (b"[1]", "text/plain", False),
        (b"[\x00", "application/vnd.edgewake.frame+packed", False),
        (b"[1]", "application/vnd.edgewake.frame+json", False),
        (b'{"v":1}', None, False),
        (b'{"v":1}', "application/json;charset=utf-8", False),
        (b"", None, False),
        (b'{"v":1}', "application/x-ndjson", True),
        (b'{"v":1}', "application/jsonl; charset=utf-8", True),
        (b"x", "application/senml+json; charset=utf-8", True),
        (b"x", "application/senml+cbor", True),
        (b"x", "application/cloudevents+json", True),
        (b"x", "application/CloudEvents-batch+json", True),
    ],
)
def test_a_content_type_counts_without_its_parameters_whatever_its_case(
    payload: bytes, content_type: str | None, has_them: bool
) -> None:
    """A list whose sender said `charset=utf-8` was a dead letter."""
    assert has_items(payload, content_type) is has_them


def test_a_message_with_other_properties_is_looked_at_by_its_first_byte() -> None:
    assert not has_items(b'{"v":1}', None, [("traceparent", "x")])
    assert has_items(b"[1]", None, [("traceparent", "x")])
    assert has_items(b'{"v":1}', None, BINARY)


PACK = [{"bn": "b/", "bt": 1_790_000_000, "n": "t", "u": "Cel", "v": 21.5}, {"n": "h", "v": 48}]
SENML = WithUnits({"t_": 21.5, "h": 48, "base_name": "b/", "t": NOW_MS}, {"t_": "Cel"})
OF_EVENT = {"temp": 21.5, "event_id": "7", "event_source": "/shed", "t": AT_MS}


@pytest.mark.parametrize(
    ("payload", "content_type", "found"),
    [
        (orjson.dumps(PACK), "application/senml+json;v=1", [SENML]),
        (cbor2.dumps([{-2: "b/", -3: 1_790_000_000, 0: "t", 1: "Cel", 2: 21.5},
            {0: "h", 2: 48}]), "application/senml+cbor", [SENML]),
        (b'{"a":1}\n\n{"a":2}\n', "application/ndjson", [b'{"a":1}', b'{"a":2}']),
        (b'[{"a":1}, 5]', "application/vnd.x+json", [{"a": 1}, 5]),
        (orjson.dumps(EVENT), "application/cloudevents+json; charset=utf-8", [OF_EVENT]),
        (orjson.dumps([EVENT, EVENT]), "application/cloudevents-batch+json", [OF_EVENT] * 2),
    ],
)  # fmt: skip
def test_what_is_in_it(payload: bytes, content_type: str, found: list[Any]) -> None:
    assert without_empty(items(payload, content_type, (), NOW_MS)) == found


def without_empty(found: Sequence[Any]) -> list[Any]:
    """An event whose data were taken out of it has an object without fields in their place."""
    return [
        {name: value for name, value in one.items() if value != {}} if type(one) is dict else one
        for one in found
    ]


@pytest.mark.parametrize(
    ("body", "content_type", "data"),
    [
        (b'{"temp":21.5}', "application/json; charset=utf-8", {"temp": 21.5}),
        (b'{"temp":21.5}', None, {"temp": 21.5}),
        (b"warm", "text/plain", {"data": "warm"}),
        (b"\xff\x00", "application/octet-stream", {"data_base64": "/wA="}),
        (b"", None, {}),
    ],
)
def test_an_event_in_binary_mode_has_its_attributes_as_properties(
    body: bytes, content_type: str | None, data: dict[str, Any]
) -> None:
    """It was refused, or its type and time were lost."""
    (found,) = without_empty(items(body, content_type, BINARY, NOW_MS))
    assert found == data | {"event_id": "7", "event_source": "/shed", "t": AT_MS}


def test_a_structured_event_with_properties_is_what_its_content_type_says() -> None:
    assert binary_event(b"{}", "application/cloudevents+json", BINARY) is None
    assert binary_event(b"{}", None, [("traceparent", "x")]) is None


def test_of_several_events_a_wrong_one_costs_itself() -> None:
    wrong = {name: value for name, value in EVENT.items() if name != "source"}
    kind = "application/cloudevents-batch+json"
    bad, good = items(orjson.dumps([wrong, EVENT]), kind, (), NOW_MS)
    assert isinstance(bad, BadItem)
    assert (bad.why.detail, orjson.loads(bad.text)) == ("a CloudEvent: source is missing", wrong)
    assert without_empty([good]) == [OF_EVENT]


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b"{", "application/cloudevents+json"),
        (b"{}", "application/cloudevents-batch+json"),
        (b"[{", None),
        (b"x", "application/senml+json"),
    ],
)
def test_what_is_wrong_as_a_whole_is_refused(payload: bytes, content_type: str | None) -> None:
    with pytest.raises(Rejected):
        items(payload, content_type, (), NOW_MS)


@pytest.mark.parametrize(
    "data", ["[" * 300 + "]" * 300, '"\\ud800"', "[NaN," + "[" * 300 + "]" * 300 + "]"]
)
def test_an_event_that_json_cannot_hold_is_a_wrong_item_or_refused(data: str) -> None:
    """It ended the bridge, and the next one to which the broker gave it."""
    text = '{"specversion":"1.0","id":"a","source":"b","type":"c","more":NaN,"data":' + data + "}"
    try:
        (found,) = items(text.encode(), "application/cloudevents+json", (), NOW_MS)
    except Rejected:
        return
    assert isinstance(found, BadItem | dict)
    assert isinstance(found, BadItem) or orjson.dumps(found)
