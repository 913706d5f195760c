"""`make day`: a day of three hundred mixed devices in ten minutes; prints what happens and what the
oracle says. Exit code 1 where anything is lost, twice, wrongly timed, altered or swallowed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.day.day import Day

EVERY_S = 1.0
"""Between two numbers of a device."""


async def live(seconds: int, folder: Path) -> bool:
    """Was it a good day?"""
    began_s = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began_s:7.1f} s  {text[:400]}", flush=True)

    async with Day(folder, every_s=EVERY_S, tell=tell) as day:
        await day.live(seconds)
        verdict = await day.settle()
        print(json.dumps(day.report(verdict), indent=1))
        is_quiet = not any(day.at_the_end.values()) and not day.letters.others
        return verdict.is_clean and is_quiet


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.day", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="edgewake-day-") as folder:
        return 0 if asyncio.run(live(seconds, Path(folder))) else 1


if __name__ == "__main__":
    sys.exit(main())
