"""What the link's speed means for frames and keepalive."""

from __future__ import annotations

from edgewake.edge.liveness import Outgoing
from edgewake.edge.uplink.goodput import FRAME_BYTES_FIRST, FRAME_BYTES_MIN, Goodput

MOST = 256 << 10


def after(*samples: tuple[float, int, int]) -> Goodput:
    """(time, confirmed, waiting)."""
    goodput = Goodput()
    for now_s, confirmed, waiting in samples:
        goodput.sample(now_s, Outgoing(confirmed, waiting))
    return goodput


def busy(bytes_per_s: int, seconds: int = 10) -> Goodput:
    return after(*((float(n), n * bytes_per_s, 50_000) for n in range(seconds)))


def test_before_anything_is_known_frames_are_modest() -> None:
    assert Goodput().frame_bytes(MOST) == FRAME_BYTES_FIRST
    assert Goodput().frame_bytes(1000) == 1000


def test_a_frame_holds_two_seconds_of_a_slow_link() -> None:
    assert busy(8_000).frame_bytes(MOST) == 16_000
    assert busy(100).frame_bytes(MOST) == FRAME_BYTES_MIN
    assert busy(10_000_000).frame_bytes(MOST) == MOST


def test_bytes_that_did_not_wait_prove_a_fast_link() -> None:
    assert after((0, 0, 0), (1, 1_000_000, 0)).frame_bytes(MOST) == MOST


def test_a_trickle_proves_nothing_and_slows_nothing() -> None:
    assert (
        after(*((float(n), n * 100, 0) for n in range(100))).frame_bytes(MOST) == FRAME_BYTES_FIRST
    )


def test_a_link_that_got_faster_is_found_out() -> None:
    goodput = busy(8_000)
    for n in range(10, 25):
        goodput.sample(n, Outgoing(n * 9_000, 0))
    assert goodput.frame_bytes(MOST) == MOST


def test_a_stall_is_no_speed() -> None:
    goodput = busy(8_000)
    for n in range(10, 60):
        goodput.sample(n, Outgoing(72_000, 50_000))
    assert goodput.frame_bytes(MOST) == 16_000


def test_looks_in_quick_succession_are_one_measurement() -> None:
    goodput = after((0, 0, 1), (0.1, 100_000, 1), (1.0, 8_000, 1))
    assert goodput.bytes_per_s == 8_000


def test_a_new_connection_counts_from_its_own_beginning() -> None:
    goodput = busy(8_000)
    goodput.connected()
    goodput.sample(100, Outgoing(0, 1))
    goodput.sample(101, Outgoing(8_000, 1))
    assert goodput.bytes_per_s == 8_000


def test_the_keepalive_leaves_time_for_a_packet_that_is_on_its_way() -> None:
    assert Goodput().keepalive_s(10, 1 << 20) == 10
    assert busy(8_000).keepalive_s(10, 1_000) == 10
    assert busy(8_000).keepalive_s(10, 190_000) == 71
    assert busy(10).keepalive_s(10, 190_000) == 120
