"""A message to a device, until it is answered."""

from __future__ import annotations

from edgewake.protocol.downlink.down_row import DownRow, key_of
from edgewake.protocol.downlink.downlink import Answer, AnswerState, DownKind

ROW = DownRow(
    device="car", kind=DownKind.COMMAND, payload="{}", asked_at=0, expires_at=1000, asked_by="me"
)


def test_it_goes_to_the_gateway_that_speaks_for_the_thing() -> None:
    behind = ROW.model_copy(update={"via": "gateway-1"})
    assert (ROW.sent_to, behind.sent_to) == ("car", "gateway-1")


def test_it_waits_until_its_time_is_over_or_its_answer_is_there() -> None:
    answer = Answer(id="r-1", kind=DownKind.COMMAND, state=AnswerState.DONE)
    answered = ROW.model_copy(update={"answer": answer})
    assert (ROW.waits_at(999), ROW.waits_at(1000), answered.waits_at(0)) == (True, False, False)


def test_its_key_is_the_device_and_the_id() -> None:
    assert key_of("car", "r-1") == "car|r-1"
