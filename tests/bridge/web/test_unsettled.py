"""Requests that come again after a 503, and what is forgotten of them."""

from __future__ import annotations

import asyncio

import pytest

from edgewake.cloud.bridge.mqtt.ack_ledger import Awaited
from edgewake.cloud.bridge.web.requests import Asked
from edgewake.cloud.bridge.web.unsettled import (
    KEPT_MAX,
    KEPT_OF_ONE_MAX,
    KEPT_S,
    Given,
    Unsettled,
)
from edgewake.protocol.maps.http_forms import Form, Head

LINE = b"cpu v=1"


def asked(device: str = "a", target: str = "/write?db=d", **headers: str) -> Asked:
    return Asked(Form.INFLUX_1, Head.of("POST", target, headers)._replace(device=device))


def given(readings: int = 1) -> Given:
    return Given(readings, Awaited(0.0, lambda: None), asyncio.Event())


def test_the_same_request_is_met_once() -> None:
    kept, first = Unsettled(), given()
    kept.keep(asked(), LINE, first, 0.0)
    assert kept.pop(asked(), LINE, 1.0) is first
    assert kept.pop(asked(), LINE, 1.0) is None, "another reading"


@pytest.mark.parametrize(
    ("other", "body"),
    [
        (asked("b"), LINE),
        (asked(target="/write?db=e"), LINE),
        (asked(target="/api/v2/write?db=d"), LINE),
        (asked(**{"content-encoding": "gzip"}), LINE),
        (asked(**{"ce-id": "2"}), LINE),
        (asked(**{"x-limit-d": "phone"}), LINE),
        (asked(**{"idempotency-key": "k"}), LINE),
        (asked(), LINE + b"1"),
    ],
)
def test_another_request_is_not_the_same(other: Asked, body: bytes) -> None:
    kept = Unsettled()
    kept.keep(asked(), LINE, given(), 0.0)
    assert kept.pop(other, body, 1.0) is None
    assert kept.pop(asked(), LINE, 1.0) is not None, "the control"


def test_it_is_kept_for_its_time_from_the_last_503() -> None:
    kept = Unsettled()
    kept.keep(asked(), LINE, given(), 0.0)
    again = kept.pop(asked(), LINE, KEPT_S - 1)
    assert again is not None
    kept.keep(asked(), LINE, again, KEPT_S - 1)
    assert kept.pop(asked(), LINE, 2 * KEPT_S - 2) is again
    kept.keep(asked(), LINE, again, 0.0)
    assert kept.pop(asked(), LINE, KEPT_S) is None
    assert len(kept) == 0


def test_one_sender_takes_no_place_of_others() -> None:
    kept = Unsettled()
    kept.keep(asked("calm"), LINE, given(), 0.0)
    for number in range(KEPT_OF_ONE_MAX + 10):
        kept.keep(asked("loud"), b"%d" % number, given(), 0.0)
    assert len(kept) == KEPT_OF_ONE_MAX + 1
    assert kept.pop(asked("loud"), b"9", 1.0) is None, "its oldest were forgotten"
    assert kept.pop(asked("loud"), b"10", 1.0) is not None
    assert kept.pop(asked("calm"), LINE, 1.0) is not None


def test_all_together_are_bounded() -> None:
    kept = Unsettled()
    for number in range(KEPT_MAX + 5):
        kept.keep(asked(f"d{number}"), LINE, given(), 0.0)
    assert len(kept) == KEPT_MAX
    assert kept.pop(asked("d4"), LINE, 1.0) is None
    assert kept.pop(asked("d5"), LINE, 1.0) is not None
