"""Questions without end: in SQL by one key's holder, for feeds by one device. Another asks
something small, or sends.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.lake.asking import AT_ONCE_MAX, Asking
from edgewake.cloud.turns import Turns
from edgewake.protocol import topics
from edgewake.protocol.errors import EdgewakeError
from tests.access.test_faults import metric
from tests.access.world import Server, key_file, server
from tests.feeds import Feed
from tests.hostile.raw import raw_flood
from tests.hostile.test_floods import NOTHING_BOUNDED
from tests.hostile.victims import QUEUED_S, Count, note, times_of_this_machine
from tests.hostile.world import Victim, World, beside_attack, harmed
from tests.services import PATIENCE_S

pytestmark = pytest.mark.services

DEAR = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = {}"
SECONDS = 25.0
ATTACKS = 12


async def ask(asking: Asking, sql: str, holder: str) -> float:
    """Seconds until the answer."""
    began = time.monotonic()
    await asking.ask({"sql": sql, "rows": 10, "seconds": SECONDS}, holder=holder)
    return time.monotonic() - began


@pytest.mark.parametrize(
    "is_shared",
    [pytest.param(True, id=""), pytest.param(False, id="control", marks=pytest.mark.long)],
)
async def test_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shared: bool) -> None:
    """Control: where one holder may use all at once, the other waits until the first is done."""
    if not is_shared:
        monkeypatch.setattr(Turns, "each_of", staticmethod(lambda at_once: at_once))
    asking = Asking(tmp_path, KafkaConfig())
    await ask(asking, "SELECT 1", "victim")
    attacks = [
        asyncio.create_task(ask(asking, DEAR.format(n % 7), "attacker")) for n in range(ATTACKS)
    ]
    await asyncio.sleep(0)
    try:
        refused = [one for one in attacks if one.done()]
        assert len(refused) == ATTACKS - 4, "half of what may wait is its share"
        assert all(isinstance(one.exception(), EdgewakeError) for one in refused)
        victim = asyncio.create_task(ask(asking, "SELECT 1", "victim"))
        under_way = [one for one in attacks if not one.done()]
        async with asyncio.timeout(4 * PATIENCE_S):
            await asyncio.wait([victim, *under_way], return_when=asyncio.FIRST_COMPLETED)
        assert victim.done() is is_shared, AT_ONCE_MAX
    finally:
        for one in attacks:
            one.cancel()
        await asyncio.gather(victim, *attacks, return_exceptions=True)


FEEDS = 16
"""As many as a device may have."""


@contextmanager
def fed(here: World, folder: Path, *lines: str) -> Iterator[tuple[Server, list[bytes]]]:
    """Bridges that ask an access server for devices, with this table [device]; and questions."""
    feed = Feed(here.kafka)
    feed.send(n=10)
    with (
        server(folder, here.kafka, key_file(folder)) as access,
        here.bridges_with(
            *lines, "[feed]", f'access_urls = ["{access.url}"]', 'streams = ["*"]', are_overrun=True
        ),
    ):
        asks = [
            {"feed": f"f{n}", "streams": [feed.name], "begin": "earliest"} for n in range(FEEDS)
        ]
        yield access, [json.dumps(one).encode() for one in asks]
    feed.close()


@pytest.mark.long
def test_feeds(here: World, victim: Victim, tmp_path: Path) -> None:
    """As fast as the broker takes them, each for all of a stream, under each name in turn."""
    with fed(here, tmp_path) as (access, asks):
        with raw_flood(here, topics.feed("attacker"), *asks) as attack:
            before, beside = beside_attack(victim, attack, head_start=20)
            counted = victim.count()
        note("another device", before, beside, counted)
        assert beside.high_s < QUEUED_S * times_of_this_machine()
        assert counted == Count()
        assert metric(access, 'edgewake_access_started_total{how="earliest"}') > 50, "some came"


@pytest.mark.long
def test_control_without_a_share_questions_for_feeds_delay_the_victim(
    here: World, victim: Victim, tmp_path: Path
) -> None:
    with (
        fed(here, tmp_path, *NOTHING_BOUNDED) as (_, asks),
        raw_flood(here, topics.feed("attacker"), *asks) as attack,
    ):
        harmed(victim, attack, count=1, head_start=20)
