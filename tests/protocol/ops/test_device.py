"""Which of a device's statuses counts, in whatever order bridges write them."""

from __future__ import annotations

from itertools import permutations

import pytest

from edgewake.protocol.ops.device import LATE_MS, DeviceState, DeviceStatus, is_overtaken

ONLINE, OFFLINE = DeviceState.ONLINE, DeviceState.OFFLINE


def status(state: DeviceState, connected_at: int | None, received_at: int = 0) -> DeviceStatus:
    return DeviceStatus(device="d", state=state, connected_at=connected_at, received_at=received_at)


def last_word(statuses: tuple[DeviceStatus, ...]) -> DeviceStatus:
    """What stands when all have come."""
    known: DeviceStatus | None = None
    for new in statuses:
        if not is_overtaken(new, known):
            known = new
    assert known is not None
    return known


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_a_device_that_came_back_is_online_whatever_the_order_in_which_its_statuses_are_written(
    order: tuple[int, ...],
) -> None:
    history = [status(ONLINE, 1), status(ONLINE, 1), status(OFFLINE, 1), status(ONLINE, 2)]
    assert last_word(tuple(history[i] for i in order)) == status(ONLINE, 2)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_a_device_that_went_is_offline_whatever_the_order(order: tuple[int, ...]) -> None:
    history = [status(ONLINE, 1), status(OFFLINE, 1), status(ONLINE, 2), status(OFFLINE, 2)]
    assert last_word(tuple(history[i] for i in order)) == status(OFFLINE, 2)


def test_a_clock_that_was_set_back_hides_a_device_for_a_while_only() -> None:
    before, after = status(ONLINE, 100, received_at=0), status(ONLINE, 5, received_at=LATE_MS)
    assert last_word((before, after)) == after
    assert last_word((before, after, status(OFFLINE, 5, received_at=LATE_MS + 1))).state is OFFLINE


def test_what_has_no_connection_counts_as_it_comes() -> None:
    assert last_word((status(ONLINE, 2), status(OFFLINE, None))).state is OFFLINE
