"""Connections for questions whose answers take long, in pools that each have few.

A pool of httpx looks at all of its connections whenever a question is asked or answered, so what
one costs grows with how many wait: with two thousand in one pool it was a processor.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import httpx

from edgewake.protocol.errors import Unavailable

WAITS_MAX: Final = 10_000
"""Questions that wait for an answer at other proxies; these have each client's share."""
TOGETHER_MAX: Final = 200
"""The most of them that share a pool."""
KEPT_MAX: Final = 20
"""Connections of a pool that are kept for the next question."""


def _pool() -> Callable[[], httpx.AsyncClient]:
    tls = ssl.create_default_context()  # made once: it takes some 20 ms
    limits = httpx.Limits(max_connections=TOGETHER_MAX, max_keepalive_connections=KEPT_MAX)
    return lambda: httpx.AsyncClient(limits=limits, trust_env=False, verify=tls)


class WaitingPools:
    """Pools of connections, for one event loop; `close` it."""

    def __init__(self, waits_max: int = WAITS_MAX) -> None:
        self._make = _pool()
        self._waits_max = waits_max
        self._waiting: dict[httpx.AsyncClient, int] = {}

    def __len__(self) -> int:
        """How many questions wait?"""
        return sum(self._waiting.values())

    @contextmanager
    def one(self) -> Iterator[httpx.AsyncClient]:
        """A client for one question. Raises Unavailable."""
        if len(self) >= self._waits_max:
            raise Unavailable(f"{self._waits_max} clients wait for other proxies already")
        pool = next((pool for pool, n in self._waiting.items() if n < TOGETHER_MAX), None)
        if pool is None:
            pool = self._make()
        self._waiting[pool] = self._waiting.get(pool, 0) + 1
        try:
            yield pool
        finally:
            self._waiting[pool] -= 1

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._waiting:
            await pool.aclose()
