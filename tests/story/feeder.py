"""Gives the agents what the ledger knows: lines in the files that they tail, at a steady rate,
until told to stop.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping
from pathlib import Path

from edgewake.simulators.ledger import Ledger, Reading


class Feeder:
    """Appends to the input files and notes each line in the ledger before it is written."""

    def __init__(
        self, ledger: Ledger, files: Mapping[str, Path], *, per_second: float, seed: int = 1
    ) -> None:
        self._ledger = ledger
        self._files = files
        self._per_second = per_second
        self._rng = random.Random(seed)
        self.written = dict.fromkeys(files, 0)
        """File → number of its newest line."""
        self._running = True

    def stop(self) -> None:
        """No more lines."""
        self._running = False

    async def run(self) -> None:
        """Write until stopped; what is late is made up for, so the rate holds."""
        start_s = time.monotonic()
        while self._running:
            due = int((time.monotonic() - start_s) * self._per_second)
            for device, file in self._files.items():
                self._append(device, file, due - self.written[device])
            await asyncio.sleep(1 / self._per_second)

    def _append(self, device: str, file: Path, count: int) -> None:
        lines = []
        for _ in range(count):
            self.written[device] += 1
            # Eighths are exact in binary, so that a sum is the same in whatever order it was made.
            reading = Reading(
                device,
                self.written[device],
                time.time_ns() // 1_000_000,
                self._rng.randint(-800, 800) / 8,
            )
            self._ledger.put(reading)
            lines.append(
                json.dumps({"t": reading.t_ms, "n": reading.n, "value": reading.value}) + "\n"
            )
        with file.open("a") as out:
            out.write("".join(lines))
