"""What is taken leaves by an acknowledgement only, in order, within bounds."""

from __future__ import annotations

from edgewake.simulators.outbox import Outbox


def outbox(*, window: int = 10, lane_window: int = 1, capacity: int = 100) -> Outbox:
    return Outbox(window=window, lane_window=lane_window, capacity=capacity, resend_after_s=5.0)


def offer(box: Outbox, *payloads: bytes, lane: str = "a") -> None:
    for payload in payloads:
        box.offer(lane, f"topic/{lane}", payload)


def drain(box: Outbox, now_s: float = 0.0) -> list[bytes]:
    sent = []
    while (message := box.next_message(now_s)) is not None:
        sent.append(message.payload)
    return sent


def test_the_next_of_a_lane_waits_for_the_acknowledgement_of_the_one_before():
    box = outbox()
    offer(box, b"1", b"2")
    assert drain(box) == [b"1"]
    box.settle(1)
    assert drain(box) == [b"2"]


def test_one_lane_does_not_wait_for_another():
    box = outbox()
    offer(box, b"1", b"2")
    offer(box, b"x", lane="b")
    assert drain(box) == [b"1", b"x"]


def test_all_lanes_together_keep_within_the_window():
    box = outbox(window=2)
    for lane in "abc":
        offer(box, lane.encode(), lane=lane)
    assert drain(box) == [b"a", b"b"]
    box.settle(1)
    assert drain(box) == [b"c"]


def test_after_a_lost_connection_what_was_in_flight_goes_first_and_in_order():
    box = outbox(lane_window=3)
    offer(box, b"1", b"2", b"3", b"4")
    assert drain(box) == [b"1", b"2", b"3"]
    box.settle(2)
    box.disconnected()
    assert drain(box) == [b"1", b"3", b"4"]


def test_what_nobody_acknowledges_is_sent_again_after_a_while_with_the_same_bytes():
    box = outbox()
    offer(box, b"1")
    assert drain(box, 0.0) == [b"1"]
    assert drain(box, 4.9) == []
    assert box.next_due_s() == 5.0
    assert drain(box, 5.0) == [b"1"]
    assert box.resent == 1


def test_a_second_acknowledgement_changes_nothing():
    box = outbox()
    offer(box, b"1")
    drain(box)
    assert box.settle(1) is not None
    assert box.settle(1) is None
    assert len(box) == 0


def test_a_message_may_be_settled_while_it_waits_to_be_sent_again():
    box = outbox()
    offer(box, b"1", b"2")
    drain(box)
    box.disconnected()
    box.settle(1)
    assert drain(box) == [b"2"]


def test_at_the_bound_the_oldest_that_was_never_sent_is_given_up():
    box = outbox(capacity=3)
    offer(box, b"1")
    drain(box)
    offer(box, b"2", b"3", b"4")
    assert box.given_up == 1
    box.settle(1)
    assert drain(box) == [b"3"]


def test_at_the_bound_with_all_on_their_way_the_new_one_is_given_up():
    box = outbox(lane_window=2, capacity=2)
    offer(box, b"1", b"2")
    drain(box)
    offer(box, b"3")
    assert (box.given_up, len(box), box.full) == (1, 2, True)


def test_a_postponed_message_waits_with_its_lane_while_others_go_on():
    box = outbox(window=1)
    offer(box, b"1", b"2")
    assert drain(box) == [b"1"]
    box.postpone(1, until_s=60.0)
    offer(box, b"x", lane="b")
    assert drain(box, 1.0) == [b"x"]
    box.settle(3)
    assert box.next_due_s() == 60.0
    assert drain(box, 59.9) == []
    assert drain(box, 60.0) == [b"1"]
    box.settle(1)
    assert drain(box, 60.0) == [b"2"]


def test_a_postponed_message_keeps_its_time_through_a_lost_connection():
    box = outbox()
    offer(box, b"1")
    drain(box)
    box.postpone(1, until_s=60.0)
    box.disconnected()
    assert drain(box, 1.0) == []
    assert drain(box, 60.0) == [b"1"]


def test_only_a_message_in_flight_is_postponed():
    box = outbox()
    offer(box, b"1")
    box.postpone(1, until_s=60.0)
    assert drain(box) == [b"1"]


def test_an_answer_to_a_message_that_was_never_sent_settles_nothing():
    """Somebody else's answer: of a process before, whose keys are the same."""
    box = outbox(lane_window=1)
    offer(box, b"1", b"2")
    assert drain(box) == [b"1"]
    assert box.settle(2) is None
    assert box.settle(1) is not None
    assert drain(box) == [b"2"]
