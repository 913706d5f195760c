"""The messages that were taken already."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.mqtt.recent_packets import PACKETS_MAX, RecentPackets


@given(st.lists(st.tuples(st.integers(1, 70), st.integers(0, 2)), max_size=150))
def test_of_all_messages_the_last_ones_are_known(order: list[tuple[int, int]]) -> None:
    """Against a plain list; also after each of them was written and read."""
    recent, model = RecentPackets(), list[tuple[int, int]]()
    for packet_id, content in order:
        recent.add(packet_id, "t", b"%d" % content)
        model = [*(each for each in model if each[0] != packet_id), (packet_id, content)][
            -PACKETS_MAX:
        ]
    for known in (recent, recent.copy(), RecentPackets.decode(recent.encode())):
        assert {
            (n, c) for n in range(1, 71) for c in range(3) if known.is_repeat(n, "t", b"%d" % c)
        } == set(model)


def test_a_copy_changes_for_itself() -> None:
    one = RecentPackets()
    other = one.copy()
    other.add(1, "t", b"")
    assert (one.is_repeat(1, "t", b""), other.is_repeat(1, "t", b"")) == (False, True)
