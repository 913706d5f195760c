"""A device's request as the operations API knows it."""

from __future__ import annotations

from edgewake.protocol.downlink.down_message import Reply, ReplyState
from edgewake.protocol.downlink.request_row import REPLY_LIFE_MS, RequestRow

ROW = RequestRow(
    device="car", id="r-1", name="route", body="", received_at=0, expires_at=9,
    partition=3, offset=17, place=2,
)  # fmt: skip
REPLY = Reply(id="reply-r-1", state=ReplyState.ANSWERED)


def test_it_waits_until_it_has_its_reply() -> None:
    assert (ROW.is_open, ROW.model_copy(update={"reply": REPLY}).is_open) == (True, False)


def test_its_place_is_behind_all_that_was_taken_before() -> None:
    assert ROW.position == (17, 2)


def test_it_is_settled_when_the_device_has_the_reply_or_has_slept_too_long() -> None:
    replied = ROW.model_copy(update={"reply": REPLY, "replied_at": 100})
    delivered = replied.model_copy(update={"delivered_at": 101})
    assert not ROW.is_settled_at(REPLY_LIFE_MS * 2)
    assert not replied.is_settled_at(99 + REPLY_LIFE_MS)
    assert replied.is_settled_at(100 + REPLY_LIFE_MS)
    assert delivered.is_settled_at(101)
