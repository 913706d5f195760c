"""Runs questions to the store of summaries in threads.

A few run at once and a few wait; one more is answered 503.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from edgewake.cloud.client_share import Bound
from edgewake.cloud.ops.lookups.asked_by import ASKED_BY
from edgewake.cloud.summaries.store import Reads, View
from edgewake.cloud.turns import Turns

AT_ONCE_MAX: Final = 2
"""The number of questions that run at the same time; each may hold store.BYTES_MAX."""
WAITING_MAX: Final = 20
"""The most questions that run or wait for a thread."""
HOLDER_SHARE: Final = 0.75
"""The share of WAITING_MAX that one holder of a key may use."""

T = TypeVar("T")


class SummaryReads:
    """Runs questions; `close` it at the end."""

    def __init__(self, path: Path) -> None:
        self._reads = Reads(path)
        self._threads = ThreadPoolExecutor(AT_ONCE_MAX, "ops-summaries")
        bound = Bound("questions about summaries", WAITING_MAX, HOLDER_SHARE)
        self._turns = Turns(bound, AT_ONCE_MAX)

    async def run(self, question: Callable[[View], T]) -> T:
        """Runs a question. Raises what it raises, and Unavailable."""
        over = await self._turns.take(ASKED_BY.get())
        future = self._threads.submit(self._reads.with_view, question)
        # Not when the caller disconnects: the thread is busy until the question ends.
        future.add_done_callback(lambda _: over())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Closes without waiting; a running question ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
