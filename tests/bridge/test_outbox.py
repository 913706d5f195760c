"""What a bridge sends to devices, and when. Pure."""

from __future__ import annotations

import orjson
import pytest

from edgewake.cloud.bridge.outbox import REPEAT_S, Outbox
from edgewake.protocol.downlink.down_row import DownRow, key_of
from edgewake.protocol.downlink.downlink import Answer, AnswerState, DownKind

NOW = 1_790_000_000_000


def row(
    device: str = "car",
    message: str = "a",
    *,
    lasts_ms: int = 10_000,
    answer: Answer | None = None,
    via: str = "",
) -> tuple[str, bytes]:
    payload = orjson.dumps({"id": message, "name": "x"}).decode()
    found = DownRow(
        device=device, kind=DownKind.COMMAND, payload=payload, asked_at=NOW,
        expires_at=NOW + lasts_ms, asked_by="me", answer=answer, via=via
    )  # fmt: skip
    return key_of(device, message), found.model_dump_json().encode()


def outbox(*rows: tuple[str, bytes]) -> Outbox:
    made = Outbox()
    for key, value in rows:
        made.follow(key, value)
    made.is_loaded = True
    return made


def sent(box: Outbox, now_ms: int = NOW) -> list[str]:
    keys = [key for key, _ in box.due(now_ms)]
    for key in keys:
        box.on_sent(key)
    return keys


def status(connected_at: int = 1, state: str = "online") -> bytes:
    return orjson.dumps({"device": "car", "state": state, "connected_at": connected_at})


def test_what_is_new_is_sent_at_once_and_what_was_there_before_when_its_device_comes() -> None:
    box = outbox(row(message="old"))
    assert sent(box) == []
    box.follow(*row(message="new"))
    assert sent(box) == ["car|new"]
    box.on_status("car", status(), 0.0)
    assert sent(box) == ["car|old", "car|new"]
    assert box.sent == 3


def test_it_is_sent_again_at_each_return_and_now_and_then_but_not_at_every_status() -> None:
    box = outbox(row())
    box.on_status("car", status(1), 0.0)
    assert sent(box) == ["car|a"]
    box.on_status("car", status(1), REPEAT_S - 1)
    assert sent(box) == []
    box.on_status("car", status(1), REPEAT_S)
    assert sent(box) == ["car|a"]
    box.on_status("car", status(2), REPEAT_S + 1)
    assert sent(box) == ["car|a"]
    box.on_status("car", status(3, "offline"), 1000.0)
    box.on_status("other", status(3), 1000.0)
    assert sent(box) == []


def test_what_is_over_or_answered_or_removed_is_sent_no_more() -> None:
    box = outbox(row(message="a"), row(message="b"), row(message="c", lasts_ms=5))
    box.on_status("car", status(), 0.0)
    box.follow(
        *row(message="a", answer=Answer(id="a", kind=DownKind.COMMAND, state=AnswerState.DONE))
    )
    box.follow("car|b", None)
    assert sent(box, NOW + 5) == []
    box.follow("car|c", None)
    assert box._devices == {}


def test_what_the_broker_does_not_take_now_stays_due() -> None:
    box = outbox()
    box.follow(*row())
    assert [key for key, _ in box.due(NOW)] == [key for key, _ in box.due(NOW)] == ["car|a"]


@pytest.mark.parametrize(
    ("key", "value"), [("car|a", b"{}"), ("other|a", row()[1]), ("a", b"\xff")]
)
def test_a_row_that_is_none_is_told_and_changes_nothing(key: str, value: bytes) -> None:
    box = outbox()
    with pytest.raises(ValueError, match=r"."):
        box.follow(key, value)
    assert sent(box) == []


def test_what_is_for_a_thing_waits_for_its_gateway() -> None:
    box = outbox(row("meter", via="gateway"))
    box.on_status("meter", status(), 0.0)
    assert sent(box) == []
    box.on_status("gateway", status(), 0.0)
    ((key, found),) = box.due(NOW)
    assert (key, found.sent_to) == ("meter|a", "gateway")
    box.on_sent(key)
    box.follow("meter|a", None)
    box.on_status("gateway", status(2), 1.0)
    assert sent(box) == [], "gone with its row"
