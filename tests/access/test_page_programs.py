"""The programs of docs/access.md for pages, run as they stand there."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.access.world import Server
from tests.feeds import DEADLINE_S, Feed

DOC = Path(__file__).parents[2] / "docs" / "access.md"


def program(name: str, directory: Path) -> Path:
    """A block of code of the page that begins with its name."""
    (block,) = re.findall(
        rf"```(?:python|sh)\n(# {re.escape(name)}\n.*?)```", DOC.read_text(), re.DOTALL
    )
    file = directory / name
    file.write_text(block)
    return file


async def run(words: list[str], directory: Path, address: str) -> str:
    done = await asyncio.to_thread(
        subprocess.run,
        words,
        cwd=directory,
        env={**os.environ, "ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["read_pages.py", "read_pages.sh"])
async def test_it_reads_what_there_is_and_ends(
    access_a: Server, feed: Feed, tmp_path: Path, name: str
) -> None:
    file = program(name, tmp_path)
    address = f"{access_a.url}/v1/streams/{feed.name}/events"
    words = [sys.executable, str(file), address] if file.suffix == ".py" else ["sh", str(file)]
    feed.send(n=3)
    assert len((await run(words, tmp_path, address)).splitlines()) == 3


async def test_the_script_goes_on_where_it_was(
    access_a: Server, feed: Feed, tmp_path: Path
) -> None:
    file, address = (
        program("read_pages.sh", tmp_path),
        f"{access_a.url}/v1/streams/{feed.name}/events",
    )
    feed.send(n=2)
    first = await run(["sh", str(file)], tmp_path, address)
    feed.send(n=1)
    second = ""
    async with asyncio.timeout(DEADLINE_S):
        while not second:  # a server shows an event some milliseconds after Kafka has it
            second = await run(["sh", str(file)], tmp_path, address)
    assert (first.count('"n":'), second.count('"n":')) == (2, 1)
    assert '"n":3' in second
