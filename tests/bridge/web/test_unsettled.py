"""Requests that come again after a 503, and what is forgotten of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from edgewake.cloud.bridge.admission.mapped import Mapper, Part
from edgewake.cloud.bridge.mqtt.ack_ledger import Awaited
from edgewake.cloud.bridge.web.door import PATIENCE_S, Door
from edgewake.cloud.bridge.web.requests import Asked, Requests
from edgewake.cloud.bridge.web.unsettled import (
    GAVE_UP_S,
    KEPT_MAX,
    KEPT_OF_ONE_MAX,
    KEPT_S,
    Given,
    Unsettled,
)
from edgewake.cloud.client_share import Bound, Clients
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.maps.http_forms import Form, Head
from edgewake.protocol.maps.map_file import MapFile
from tests.bridge.web.test_turns import Shares
from tests.services import PATIENCE_S as PATIENT_S

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


def test_what_is_kept_for_less_behind_what_is_kept_for_more_is_met_no_longer() -> None:
    kept = Unsettled()
    kept.keep(asked(), LINE, given(), 0.0)
    kept.keep(asked("hasty"), LINE, given(), 0.0, for_s=GAVE_UP_S)
    assert kept.pop(asked("hasty"), LINE, GAVE_UP_S) is None
    assert kept.pop(asked(), LINE, GAVE_UP_S) is not None


class Slow(Shares):
    """Kafka confirms nothing."""

    def take(
        self, parts: Sequence[Part], payer: str, on_settled: Callable[[], None], *, is_named: bool
    ) -> Awaited:
        return super().take(parts, payer, lambda: None, is_named=is_named)


@pytest.mark.parametrize(("after_s", "taken"), [(GAVE_UP_S - 1, 1), (GAVE_UP_S + 1, 2)])
async def test_who_gave_up_and_comes_later_with_an_equal_reading_means_another_one(
    after_s: float, taken: int
) -> None:
    clock = FakeClock()
    bridge = Slow(clock)
    maps = MapFile(None, ("influx",), zone="UTC", needs_names=True).maps
    door = Door(
        Requests(Mapper(maps, "web-"), None, "web-", 1 << 20), bridge, Counter(),
        body_bytes_max=1 << 20, bodies=Bound("bytes", 64 << 20, 1), clients=Clients(), clock=clock,
        trusts_machine=True,
    )  # fmt: skip
    asking, messages = asked_of(door)
    await until(lambda: bridge.taken)
    clock.advance(PATIENCE_S)
    messages.put_nowait({"type": "http.disconnect"})
    await until(lambda: len(door._unsettled))
    asking.cancel()
    clock.advance(after_s)
    asking, _ = asked_of(door)
    await until(lambda: not len(door._unsettled))
    asking.cancel()
    assert len(bridge.taken) == taken


def asked_of(door: Door) -> tuple[asyncio.Task[None], asyncio.Queue[dict[str, object]]]:
    """A request, and what its server says of it."""
    messages: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    messages.put_nowait({"type": "http.request", "body": b"cpu,host=h v=1"})

    async def send(_: object) -> None:
        """Nobody hears it."""

    scope = {
        "type": "http", "method": "POST", "path": "/write", "raw_path": b"/write",
        "query_string": b"db=d", "headers": [], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }  # fmt: skip
    return asyncio.create_task(door(scope, messages.get, send)), messages


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENT_S):
        while not condition():
            await asyncio.sleep(0)


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
