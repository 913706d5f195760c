from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.push.waking.wake_queue import WakeQueue


def test_a_host_that_hangs_takes_no_other_hosts_turn() -> None:
    queue = WakeQueue(in_hand_max=10, per_host_max=2)
    for n in range(100):
        queue.add(f"hangs-{n}", "hangs")
    queue.add("1", "healthy")
    begun = [queue.start_next() for _ in range(4)]
    assert begun == [("hangs-0", "hangs"), ("1", "healthy"), ("hangs-1", "hangs"), None]


def test_a_host_goes_on_when_one_of_its_calls_ended() -> None:
    queue = WakeQueue(in_hand_max=10, per_host_max=1)
    queue.add("1", "a")
    queue.add("2", "a")
    assert (queue.start_next(), queue.start_next()) == (("1", "a"), None)
    queue.end("a")
    assert queue.start_next() == ("2", "a")


@given(
    st.lists(st.one_of(st.sampled_from("abc"), st.just("end"), st.just("begin")), max_size=80),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_bounds_are_kept_order_within_a_host_is_kept_and_nobody_is_forgotten(
    actions: list[str], most: int, per_host: int
) -> None:
    queue = WakeQueue(in_hand_max=most, per_host_max=per_host)
    in_hand: list[str] = []
    added: dict[str, list[str]] = {}
    begun: dict[str, list[str]] = {}
    number = 0

    def begin() -> bool:
        found = queue.start_next()
        if found is None:
            return False
        lease_id, host = found
        in_hand.append(host)
        begun.setdefault(host, []).append(lease_id)
        assert len(in_hand) == queue.in_hand <= most
        assert in_hand.count(host) <= per_host
        return True

    for action in actions:
        if action == "begin":
            begin()
        elif action == "end":
            if in_hand:
                queue.end(in_hand.pop(0))
        else:
            number += 1
            queue.add(str(number), action)
            added.setdefault(action, []).append(str(number))
    while begin() or in_hand:
        if in_hand:
            queue.end(in_hand.pop())
    assert begun == added
    assert len(queue) == 0
