"""One key's holder asks in SQL for as much as a question may take, again and again; another asks
something small.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.lake.asking import AT_ONCE_MAX, Asking
from edgewake.cloud.turns import Turns
from edgewake.protocol.errors import EdgewakeError
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
