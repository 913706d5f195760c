"""When a connection is dead."""

from __future__ import annotations

from collections.abc import Callable

from edgewake.edge.liveness import Liveness, Outgoing


def dies_at(
    counters: Callable[[int], tuple[int, int]],
    *,
    hears: Callable[[int], bool] = lambda _: False,
    publish: int | None = None,
) -> int:
    """The second at which a connection with a keepalive of 10 s is given up, looked at each second;
    1000 where it lives.
    """
    liveness = Liveness(10, now_s=0)
    for now_s in range(1, 1000):
        if hears(now_s):
            liveness.heard(now_s)
        if liveness.check(now_s, Outgoing(*counters(now_s)), publish) is not None:
            return now_s
    return 1000


def test_silence_ends_after_one_and_a_half_keepalives() -> None:
    assert dies_at(lambda _: (100, 0)) == 16


def test_a_broker_that_answers_lives() -> None:
    assert dies_at(lambda _: (100, 0), hears=lambda now_s: now_s % 10 == 0) == 1000


def test_a_slow_link_lives_while_bytes_move() -> None:
    """A frame of 190 KB at 8 KB/s takes 24 s, in which nothing comes in."""
    assert (
        dies_at(lambda now_s: (min(8_000 * now_s, 190_000), max(0, 190_000 - 8_000 * now_s)))
        == 23 + 16
    )


def test_a_link_on_which_nothing_moves_is_dead_however_much_waits() -> None:
    assert dies_at(lambda now_s: (min(now_s, 3) * 1000, 50_000)) == 3 + 16


def test_a_frozen_broker_is_dead_although_its_kernel_confirms_our_pings() -> None:
    """Bytes are confirmed now and then, and none wait."""
    assert dies_at(lambda now_s: (100 * (now_s // 5), 0)) == 16


def test_a_publish_that_is_never_confirmed_ends_a_connection_that_answers_pings() -> None:
    assert 15 < dies_at(lambda _: (500, 0), hears=lambda _: True, publish=7) <= 18


def test_the_time_for_a_confirmation_starts_when_the_publish_has_left() -> None:
    def slowly(now_s: int) -> tuple[int, int]:
        return min(1_000 * now_s, 50_000), max(0, 50_000 - 1_000 * now_s)

    assert dies_at(slowly, hears=lambda _: True, publish=7) == 50 + 16


def test_confirmations_that_come_keep_it_alive() -> None:
    liveness = Liveness(10, now_s=0)
    for now_s in range(1, 500):
        liveness.heard(now_s)
        assert liveness.check(now_s, Outgoing(100, 0), now_s // 10) is None
