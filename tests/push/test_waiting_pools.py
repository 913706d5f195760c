"""Questions that wait at other proxies: what one costs does not grow with how many wait."""

from __future__ import annotations

import contextlib
from collections import Counter

import httpx
import pytest

from edgewake.cloud.push.waiting_pools import TOGETHER_MAX, WaitingPools
from edgewake.protocol.errors import Unavailable


async def test_no_pool_has_many_and_places_are_used_again() -> None:
    pools = WaitingPools(waits_max=3 * TOGETHER_MAX)
    used: Counter[httpx.AsyncClient] = Counter()
    with contextlib.ExitStack() as waiting:
        used.update(waiting.enter_context(pools.one()) for _ in range(3 * TOGETHER_MAX))
        assert list(used.values()) == [TOGETHER_MAX] * 3
        with pytest.raises(Unavailable, match="600 clients wait"), pools.one():
            pass
        assert len(pools) == 3 * TOGETHER_MAX
    assert len(pools) == 0
    with pools.one() as again:
        assert again in used, "a pool that is idle is used again"
    await pools.close()
